// Everything that one rank owns: store, transport, reactor, and the world communicator. A process
// may hold several Runtime objects, for example one per thread in tests. Only Python has a global
// world().
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
  ~Runtime();  // without shutdown(): closes at once, and the peers report a failure
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  Communicator& world();
  // Creates a group of the given world ranks in the given order. They must include this rank. The
  // group exists until close_group() or the end of the runtime. All members pass the same `id`,
  // which one of them has reserved and sent to the others.
  Result<Communicator*> make_group(uint32_t id, const std::vector<Rank>& world_ranks);
  // Reserves `count` consecutive ids and returns the first. No other call, in any thread or on any
  // rank of the world, returns the same ids. Groups without a common member may have the same id.
  // Returns kUnsupported if this rank has no ids left.
  Result<uint32_t> reserve_group_ids(uint32_t count);
  // Destroys this rank's side of a group that make_group() created, and of that group's internal
  // group. The other members close their sides separately. Asynchronous calls that still run in the
  // group end. No method of the group may be running, or be called later. A group that the devices
  // know is kept until the end of the runtime, because the devices refer to it.
  void close_group(const Communicator& group);
  // Creates a group of the same ranks for internal calls, separate from the calls of `group`. Its
  // id is derived from the id of `group`, so no communication is needed. At most one exists for
  // each group.
  Result<Communicator*> make_internal_group(const Communicator& group);
  // Creates a group of the world ranks `from` and `to`, one of which is this rank. It is used for
  // messages in this direction that are moved by other means, for example GPUs. Each of the two
  // ranks creates it without communication. Returns kUnsupported if a rank is above 16383 or if the
  // channel exists already.
  Result<Communicator*> make_channel(Rank from, Rank to);
  // For GPU operations that are not calls of a group. shutdown() and abort() end the devices.
  LazyDevices& devices();
  std::size_t group_count() const;  // open groups besides the world
  // listening address of each rank; empty if there is one rank
  const std::vector<std::string>& addresses() const;
  const HostMap& hosts() const;
  // Returns null if no rank shares memory with this one. The heap exists as long as the Runtime
  // object, even after shutdown().
  shm::Heap* heap();
  // Returns the name of the world, which is unique and the same on every rank. The name is empty if
  // there is only one rank.
  const std::string& name() const;
  std::vector<CallRecord> last_calls() const;  // oldest first: at most 1024 collectives and 1024 messages
  // Closes the devices, waits until every rank has called this method, sends a goodbye, and closes.
  // Closing the devices may take the time that remains until `deadline`; the other steps may then
  // take as long again. The error of the devices is stored in `on_devices` or, if that is null, is
  // part of the result.
  Status shutdown(Deadline deadline, Status* on_devices = nullptr);
  // Ends all running and later calls with `why`, those on devices first. Closes at once, so the
  // peers report a failure.
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
