// Everything that one rank owns: store, transport, reactor, and the world communicator. It is
// explicit: a process may hold several, which is how worlds of threads are tested. world() as a
// global exists in Python only.
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
  ~Runtime();  // without shutdown(): closes at once, and the peers see a failure
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  Communicator& world();
  // Creates a group of these world ranks, in this order, which must include this rank. It lives
  // until close_group() or the end of the runtime. All members pass the same `id`, which one of
  // them has reserved and sent to the others.
  Result<Communicator*> make_group(uint32_t id, const std::vector<Rank>& world_ranks);
  // Returns the first of `count` consecutive ids that no rank of the world gets a second time, in
  // any thread. Groups without a common member may have the same id. Returns kUnsupported if this
  // rank has none left.
  Result<uint32_t> reserve_group_ids(uint32_t count);
  // Releases what a group of make_group() uses here, and its internal group; the other members
  // close theirs separately. What still runs in it ends. No call on it may be in progress or
  // follow. A group that the devices know stays until the end, because they refer to it.
  void close_group(const Communicator& group);
  // Creates a group of the same ranks, for internal calls beside the group's own; its number is
  // agreed without communication. At most one exists for each group.
  Result<Communicator*> make_internal_group(const Communicator& group);
  // Creates a group of two world ranks in this order, one of which is this rank: for messages that
  // are moved by other means, in one direction. Both create it without communication. Returns
  // kUnsupported if a rank is above 16383, or if it exists already.
  Result<Communicator*> make_channel(Rank from, Rank to);
  LazyDevices& devices();  // for what the groups' calls do not cover. They end with shutdown() and abort()
  std::size_t group_count() const;                    // open groups besides the world
  const std::vector<std::string>& addresses() const;  // where each rank listens; empty for one rank
  const HostMap& hosts() const;
  shm::Heap*
  heap();  // null: no rank shares memory with this one. Lives as long as the runtime, also after its shutdown
  const std::string& name() const;  // of this world: the same on every rank, and unique; empty for one rank
  std::vector<CallRecord> last_calls() const;  // oldest first: at most 1024 collectives and 1024 messages
  // Waits until every rank has called it, says goodbye, closes. `deadline` limits this; the devices
  // get the same time before it to close. `on_devices` receives their error, which is otherwise
  // part of the result.
  Status shutdown(Deadline deadline, Status* on_devices = nullptr);
  // Ends everything that runs in other threads, now and later, with `why`, and closes at once:
  // peers see a failure. What runs on devices ends first.
  void abort(const Status& why);
  // For a forked child: closes every descriptor, so that the peers notice the parent's end. No
  // other call may follow.
  void close_in_child() noexcept;

 private:
  Runtime();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pc
