// Everything one rank owns: store, transport, reactor, and the world communicator. Explicit: a process may hold many, which
// is how worlds of threads are tested. world() as a global exists in Python only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "bootstrap/world.h"
#include "comm/communicator.h"
#include "engine/flight_recorder.h"

namespace pc {

namespace shm {
class Heap;
}
class LazyDevices;

// Thread-safety: all methods but close_in_child().
class Runtime {
 public:
  static Result<std::unique_ptr<Runtime>> create(RuntimeOptions options, Deadline deadline);
  ~Runtime();  // without shutdown: closes at once, peers see a failure
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  Communicator& world();
  // A group of these ranks of the world, in this order; this rank must be one. It lives until close_group(), or as long as the
  // runtime. All members make it with one `id`, which one of them has reserved for it and told the others.
  Result<Communicator*> make_group(uint32_t id, const std::vector<Rank>& world_ranks);
  // The first of `count` ids, one after the other, that no rank of the world gets a second time, in whatever thread. Groups
  // without a common member may have the same id. kUnsupported: this rank has none left.
  Result<uint32_t> reserve_group_ids(uint32_t count);
  // Gives back what a group of make_group() has taken here, and what is beside it; the other members close theirs by themselves.
  // What still runs in it ends. No call on it is under way, and none may follow. A group that its devices know stays until the
  // end, because what it has there refers to it.
  void close_group(const Communicator& group);
  // A group of the same ranks, for what is done beside its calls without a word to the others about its number. One for each group.
  Result<Communicator*> make_internal_group(const Communicator& group);
  // One of two ranks of the world, of which this is one, in this order: for messages that something else moves, one way. Both make
  // it, without a word to each other. kUnsupported: its ranks have numbers above 16383, or it is there already.
  Result<Communicator*> make_channel(Rank from, Rank to);
  LazyDevices& devices();  // for what the groups' calls do not say. They end with shutdown() and abort()
  std::size_t group_count() const;                    // that are open, besides the world
  const std::vector<std::string>& addresses() const;  // where each rank listens; empty for one rank
  const HostMap& hosts() const;
  shm::Heap*
  heap();  // null: no rank shares memory with this one. Lives as long as the runtime, also when it is shut down
  const std::string& name()
      const;  // of this world, the same on every rank and unlike any other's; empty for one rank
  std::vector<CallRecord> last_calls() const;  // oldest first: at most 1024 collectives and 1024 messages
  // Waits until every rank is here, says goodbye, closes. `deadline`: of that, and as long before for the devices to close.
  // `on_devices`: gets what went wrong with these, which the result has otherwise.
  Status shutdown(Deadline deadline, Status* on_devices = nullptr);
  // Ends everything that runs in other threads, now and later, with `why`, and closes at once: peers see a failure. What runs on
  // devices ends first.
  void abort(const Status& why);
  // In a forked child: closes every descriptor, so that the parent's end is seen by its peers. Nothing may follow.
  void close_in_child() noexcept;

 private:
  Runtime();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pc
