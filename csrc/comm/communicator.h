// A group of ranks that call collectives together. It checks arguments, assigns numbers and
// fingerprints to calls, chooses the algorithm, passes the call to an executor, and turns a failure
// into one Status that names rank, peer, operation and time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/status.h"
#include "comm/explain_call.h"
#include "comm/group_messages.h"
#include "engine/executor.h"

namespace pc {

class GroupNames;
class LazyDevices;

// Thread-safety: all methods. Calls of two threads on one group are issued one after the other, but
// the caller must ensure that all ranks issue them in the same order.
class Communicator {
 public:
  Communicator(const GroupParts& parts, uint32_t group, GroupNames names, double timeout_s,
               SelectionTable selection);
  ~Communicator();  // ends the calls that still run
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  uint32_t id() const;
  Rank rank() const { return rank_; }
  Rank size() const { return size_; }
  double timeout_s() const { return timeout_s_; }
  std::span<const Rank> world_ranks() const;  // the group's members, by group rank

  // Runs the call in this thread and waits until it has ended. A negative `timeout_s` selects the
  // group's default. Returns kInvalidArgument for invalid arguments, before a byte is sent. A call
  // with arrays on a GPU returns as Request::stream specifies.
  Status run(const Request& request, double timeout_s = -1);
  // Starts a call with arrays on the host and does not wait for it. The thread that waits on the
  // Work drives the call. The Work reports how the call ended, even if it could not begin because
  // other ranks had given it up. Returns null if the call has already succeeded.
  Result<WorkPtr> launch(const Request& request);
  // Like launch(), but the progress thread drives the call while no thread waits for it. The call
  // continues even if the AsyncWork is dropped, so its arrays must stay valid until the call has
  // ended.
  Result<std::shared_ptr<AsyncWork>> begin(const Request& request, AsyncOptions how);
  // Registers a call that another library executes, for example NCCL. Like any other call it gets a
  // number and a description, which is compared across the ranks. The caller has checked the
  // arguments; the arrays are not accessed. `by` names the library. The AsyncWork succeeds when all
  // ranks have made the same call. Returns null if nothing is compared, because there is one rank
  // or the check is off.
  Result<std::shared_ptr<AsyncWork>> begin_comparison(const Request& described, const Algorithm& by,
                                                      AsyncOptions how);

  Status send(const OutgoingMessage& message, double timeout_s = -1);
  Status send(ConstBuffer data, Rank peer, uint32_t tag, double timeout_s = -1, const char* site = nullptr) {
    return send({data, peer, tag, site}, timeout_s);
  }
  Status recv(const IncomingMessage& message, double timeout_s = -1);
  Status recv(Buffer data, Rank peer, uint32_t tag, double timeout_s = -1, const char* site = nullptr) {
    return recv({data, peer, tag, site}, timeout_s);
  }
  // Sends and receives concurrently, so that all ranks of a ring can call it at the same time.
  // Returns kUnsupported for arrays on a GPU if the two tags differ.
  Status sendrecv(const OutgoingMessage& out, Buffer in, Rank source, uint32_t tag, double timeout_s = -1);
  Result<FoundMessage> find(Rank peer, uint32_t tag, double timeout_s = -1, const char* site = nullptr) {
    return messages_.find({{}, peer, tag, site}, timeout_s);
  }
  // Receives a message that find() returned: see GroupMessages::recv().
  Status recv(Buffer data, const FoundMessage& message, std::optional<uint64_t> bundle = 0);
  Result<std::shared_ptr<AsyncWork>> begin_send(const OutgoingMessage& message, AsyncOptions how);
  Result<std::shared_ptr<AsyncWork>> begin_recv(const IncomingMessage& message, AsyncOptions how);
  GroupMessages& messages() { return messages_; }  // messages of arrays on the host

  Status may_call();  // returns, and thereby consumes, the error that the next call would raise
  Status alive();     // returns an error if the group has ended or a member has quit
  // Records the failure of an asynchronous call if no caller requests its outcome. The next call on
  // the group raises the failure; if no call follows, it is logged.
  void unobserved(const Status& outcome);
  // Returns the context of a wait that ends at `deadline`, on an interrupt, or when the group ends.
  WaitContext waiting_until(Deadline deadline) const;
  // Returns OK if the ranks may communicate through their GPUs. Returns kUnsupported with the
  // reason if a rank has no GPU or must not use it. The result is the same on every rank.
  Status gpus_may_join() const;
  bool is_strict() const;  // PYCOLLECTIVE_CHECK=strict: a barrier confirms every call

  // Recovers after an error that the ranks did not all see in the same call. Repeats barriers until
  // one succeeds, which shows that all ranks are in the same call again. If errors about earlier
  // calls have not been raised by then, they are logged instead.
  Status resync(double timeout_s = -1, const char* site = nullptr);

  // Describes one call: algorithm and reason, predicted times, steps. The group and the transport
  // in `call` are replaced by this communicator's.
  Result<std::string> explain(ExplainedCall call) const;
  // Returns true if a member has died or left, or the group was closed. Every later call raises an
  // error.
  bool ended() const;
  // Ends all running and later calls on this group with `why`. Has no effect if the group has
  // already ended: the first cause is kept.
  void abort(const Status& why) noexcept;
  // Like abort(), and ends the group on the other members too: their first call that would wait for
  // this rank ends with kPeerExited. A member that waits in a message is not informed; the message
  // ends at its deadline.
  void quit(const Status& why);
  // Waits until every rank has called this method. A rank that is in another call is informed that
  // this rank is leaving. Whatever the outcome, no call may follow. The connections stay open, so
  // that a goodbye can be sent.
  Status leave(double timeout_s);
  // Marks this rank as leaving: calls that still run in other threads then end without a notice to
  // the other ranks.
  void close();

 private:
  // Returns null if the arrays are on the host, or the runtime has no devices.
  LazyDevices* devices_for(Device in, Device out = {}) const {
    return in.type == DeviceType::kCpu && out.type == DeviceType::kCpu ? nullptr : devices_;
  }

  struct State;
  const std::unique_ptr<State> state_;
  GroupMessages& messages_;     // part of state_
  LazyDevices* const devices_;  // null if the runtime has no devices
  const Rank rank_, size_;
  const double timeout_s_;
};

}  // namespace pc
