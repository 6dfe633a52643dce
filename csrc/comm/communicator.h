// A group of ranks that call collectives together. Checks arguments, numbers and fingerprints every call, chooses the
// algorithm, hands it to an executor, and turns what went wrong into one Status that names rank, peer, operation and time.
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

// Thread-safety: all methods. Calls on one group are ordered by the caller; two threads on one group take turns.
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
  std::span<const Rank> world_ranks() const;  // of its ranks, in their order

  // Blocking, in this thread. timeout_s < 0: the group's default. Bad input: kInvalidArgument before a byte is sent. A call of
  // arrays on a GPU returns as Request::stream says.
  Status run(const Request& request, double timeout_s = -1);
  // The same without waiting, of arrays on the host; the Work is driven by whoever waits on it, and tells how the call ended, also if it could not
  // begin because others gave it up before. Null: it has ended well already.
  Result<WorkPtr> launch(const Request& request);
  // Likewise, but the progress thread drives what nobody waits for, and the call goes on whether anybody holds it or not:
  // its memory must stay until it has ended.
  Result<std::shared_ptr<AsyncWork>> begin(const Request& request, AsyncOptions how);
  // A call that something else makes, NCCL say: numbered, described and compared like any other, while it runs elsewhere.
  // It has been checked, and its arrays are not touched. `by` names what makes it. The AsyncWork ends well when all ranks have
  // made the same call. Null: there is nothing to compare, because there is one rank, or nobody is to.
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
  // Sends and receives at once, so that ranks may do this in a ring. On a GPU with one tag: another is kUnsupported.
  Status sendrecv(const OutgoingMessage& out, Buffer in, Rank source, uint32_t tag, double timeout_s = -1);
  Result<FoundMessage> find(Rank peer, uint32_t tag, double timeout_s = -1, const char* site = nullptr) {
    return messages_.find({{}, peer, tag, site}, timeout_s);
  }
  // GroupMessages::recv() of a message that was found.
  Status recv(Buffer data, const FoundMessage& message, std::optional<uint64_t> bundle = 0);
  Result<std::shared_ptr<AsyncWork>> begin_send(const OutgoingMessage& message, AsyncOptions how);
  Result<std::shared_ptr<AsyncWork>> begin_recv(const IncomingMessage& message, AsyncOptions how);
  GroupMessages& messages() { return messages_; }  // of arrays on the host

  Status may_call();  // not OK: what the next call would raise, which is raised by this
  Status alive();     // not OK: the group has ended, or a member has quit, and why
  // How a call that was begun failed for whose end nobody asks: the next call raises it, or it is logged.
  void unobserved(const Status& outcome);
  // For waits of such calls: ends when the group does.
  WaitContext waiting_until(Deadline deadline) const;
  // Whether its ranks may meet on their GPUs: kUnsupported, and why not, where some have none. The same on every rank.
  Status gpus_may_join() const;
  bool is_strict() const;  // PYCOLLECTIVE_CHECK=strict: whatever can be compared is, by every call

  // After an error that not all ranks have seen in the same call: barriers until one succeeds. Then all are in step again.
  // What has come up about earlier calls and was not raised here is logged then.
  Status resync(double timeout_s = -1, const char* site = nullptr);

  // One call in words: algorithm and why, times on paper, steps. The group and the transport are this communicator's.
  Result<std::string> explain(ExplainedCall call) const;
  // A member has died or left, or the group was closed: every call raises.
  bool ended() const;
  // Ends everything that runs on this group, now and later, with `why`. The first cause stays.
  void abort(const Status& why) noexcept;
  // Likewise, and on the other members with kPeerExited, in the call in which they would wait for this rank. Messages of the
  // others end with their deadlines.
  void quit(const Status& why);
  // Waits until every rank has come here. A rank that is in another call instead is told that this one leaves. Whatever
  // the outcome, no call may follow; but the connections stay, so that a goodbye can be said.
  Status leave(double timeout_s);
  void close();  // this rank goes: what still runs in other threads ends without a word to the others

 private:
  // Null: the arrays lie on the host, or the runtime has no devices.
  LazyDevices* devices_for(Device in, Device out = {}) const {
    return in.type == DeviceType::kCpu && out.type == DeviceType::kCpu ? nullptr : devices_;
  }

  struct State;
  const std::unique_ptr<State> state_;
  GroupMessages& messages_;     // of state_
  LazyDevices* const devices_;  // null: there are none
  const Rank rank_, size_;
  const double timeout_s_;
};

}  // namespace pc
