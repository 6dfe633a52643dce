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

// Thread-safety: all methods. The caller orders the calls on one group; calls of two threads on one
// group run one after the other.
class Communicator {
 public:
  Communicator(const GroupParts& parts, uint32_t group, GroupNames names, double timeout_s,
               SelectionTable selection);
  ~Communicator();  // ends what still runs
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  uint32_t id() const;
  Rank rank() const { return rank_; }
  Rank size() const { return size_; }
  double timeout_s() const { return timeout_s_; }
  std::span<const Rank> world_ranks() const;  // the group's members, by group rank

  // Blocking, in this thread. timeout_s < 0 selects the group's default. Bad input:
  // kInvalidArgument before a byte is sent. A call with arrays on a GPU returns as Request::stream
  // specifies.
  Status run(const Request& request, double timeout_s = -1);
  // Starts the same call without waiting, with arrays on the host. The thread that waits on the
  // Work drives it. The Work reports how the call ended, also if it could not begin because other
  // ranks had given it up. Returns null if the call has already succeeded.
  Result<WorkPtr> launch(const Request& request);
  // Like launch(), but the progress thread drives the call if no thread waits, and the call
  // continues even if the handle is dropped: its memory must stay until the call has ended.
  Result<std::shared_ptr<AsyncWork>> begin(const Request& request, AsyncOptions how);
  // Registers a call that another library makes, for example NCCL: it is numbered, described and
  // compared like any other, while it runs elsewhere. It has been checked, and its arrays are not
  // touched. `by` names the library. The AsyncWork succeeds when all ranks have made the same call.
  // Returns null if nothing is compared, because there is one rank or the check is off.
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
  // Sends and receives concurrently, so that ranks may do this in a ring. On a GPU both tags must
  // be equal, else it is kUnsupported.
  Status sendrecv(const OutgoingMessage& out, Buffer in, Rank source, uint32_t tag, double timeout_s = -1);
  Result<FoundMessage> find(Rank peer, uint32_t tag, double timeout_s = -1, const char* site = nullptr) {
    return messages_.find({{}, peer, tag, site}, timeout_s);
  }
  // GroupMessages::recv() of a message that was found.
  Status recv(Buffer data, const FoundMessage& message, std::optional<uint64_t> bundle = 0);
  Result<std::shared_ptr<AsyncWork>> begin_send(const OutgoingMessage& message, AsyncOptions how);
  Result<std::shared_ptr<AsyncWork>> begin_recv(const IncomingMessage& message, AsyncOptions how);
  GroupMessages& messages() { return messages_; }  // messages of arrays on the host

  Status may_call();  // returns, and thereby consumes, the error that the next call would raise
  Status alive();     // returns an error if the group has ended or a member has quit
  // Takes the failure of an asynchronous call if no caller requests its outcome: the next call
  // raises it, or it is logged.
  void unobserved(const Status& outcome);
  // For waits of such calls: the wait ends when the group does.
  WaitContext waiting_until(Deadline deadline) const;
  // Returns OK if the ranks may communicate through their GPUs; kUnsupported with the reason if
  // some have none. The result is the same on every rank.
  Status gpus_may_join() const;
  bool is_strict() const;  // PYCOLLECTIVE_CHECK=strict: every call compares whatever can be compared

  // Recovers from an error that not all ranks have seen in the same call: repeats barriers until
  // one succeeds. Then all ranks are in step again. Errors about earlier calls that were not raised
  // here are logged then.
  Status resync(double timeout_s = -1, const char* site = nullptr);

  // Describes one call: algorithm and reason, predicted times, steps. The group and the transport
  // are this communicator's.
  Result<std::string> explain(ExplainedCall call) const;
  // Returns true if a member has died or left, or the group was closed: every call raises.
  bool ended() const;
  // Ends everything that runs on this group, now and later, with `why`. The first cause stays.
  void abort(const Status& why) noexcept;
  // Like abort(), and ends the group on the other members with kPeerExited, in the call in which
  // they would wait for this rank. The other members' messages end with their deadlines.
  void quit(const Status& why);
  // Waits until every rank has called this method. A rank that is in another call instead is
  // informed that this one leaves. Whatever the outcome, no call may follow; but the connections
  // stay, so that a goodbye can be sent.
  Status leave(double timeout_s);
  void close();  // this rank leaves: what still runs in other threads ends without notifying the other ranks

 private:
  // Returns null if the arrays are on the host, or the runtime has no devices.
  LazyDevices* devices_for(Device in, Device out = {}) const {
    return in.type == DeviceType::kCpu && out.type == DeviceType::kCpu ? nullptr : devices_;
  }

  struct State;
  const std::unique_ptr<State> state_;
  GroupMessages& messages_;     // part of state_
  LazyDevices* const devices_;  // null: there are none
  const Rank rank_, size_;
  const double timeout_s_;
};

}  // namespace pc
