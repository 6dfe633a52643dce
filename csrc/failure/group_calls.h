// The calls of one group: their numbers and records, what the other ranks have said about them, and the end of
// the group. A call that any rank gives up ends on all, and the group goes on with the next one. The death of a
// member ends the group.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>

#include "base/clock.h"
#include "base/log.h"
#include "engine/executor.h"
#include "engine/flight_recorder.h"
#include "failure/call_endings.h"
#include "failure/control_thread.h"
#include "failure/failure_text.h"
#include "failure/late_errors.h"
#include "transport/reactor.h"

namespace pc {

// One call of this rank.
struct GroupCall {
  uint64_t sequence = 0;  // 0: point-to-point
  uint64_t ticket = 0;    // in the flight recorder
  TimePoint began;
  bool waits = false;  // its caller waits at once
  bool leaving = false;
  uint64_t confirms = 0;  // not 0: the number of the call that this one confirms
  bool asked = false;     // a message: requests_peer_report() has asked
};

// What this rank knows of calls that went wrong, and of the end of the group. GroupCalls, which hears of it, and
// FailureReports, which passes it on, share it.
struct FailureState {
  explicit FailureState(Rank rank) : late_errors(rank) {}

  std::atomic<uint32_t> ended{0};  // not 0: `cause` is set for good
  mutable std::mutex mutex;        // guards what follows
  Status cause;
  bool closing = false;         // this rank goes
  bool cause_reported = false;  // a call has raised it
  CallEndings endings;
  LateErrors late_errors;
  Surveys surveys;
  std::map<Rank, TimePoint> leaving;  // who is in shutdown(), and when that was first heard
  std::condition_variable changed;    // a failure report, a survey, or the end of the group
};

// Shared by a group, its control thread, and the Work that it launched, which may outlive both. Thread-safety: all methods.
class GroupCalls final : public ControlledGroup, public CallListener {
 public:
  // The pointers are not owned, and not touched by calls once abort() has returned. Executor and control are null if the
  // group has one rank.
  struct Parts {
    Reactor* reactor = nullptr;
    Executor* executor = nullptr;
    ControlThread* control = nullptr;
    CompletionSink* group_ends = nullptr;  // is completed when the group ends; null where the reactor is
    std::shared_ptr<FlightRecorder> recorder,
        messages;  // of collectives; of messages, which may be many more
    Logger log = Logger();
    double warn_after_s = 30;  // of waiting in one call
    bool compares = true;      // digests: who made which call can be found out
    bool confirms = false;     // every call has a confirmation, which tells what went wrong with it elsewhere
  };

  GroupCalls(const Parts& parts, uint32_t group, GroupNames names);

  // ---- around a call
  // Not 0: the group has ended. For WaitContext.
  const std::atomic<uint32_t>* word() const { return &state_.ended; }
  // Not OK: the group has ended; or an earlier call of this rank has turned out to be wrong, which is told once.
  Status before() {
    return state_.ended.load(std::memory_order_acquire) == 0 && !state_.late_errors.any() ? Status::ok()
                                                                                          : look();
  }
  Status alive() const;  // not OK: the group has ended
  // Not OK: a member has quit, so that the next call here would end with that. For who runs calls that no number ends.
  Status quit_by_others();
  // Held from numbering a call until it is launched, so that numbers start in order.
  std::unique_lock<std::mutex> issue_order() { return std::unique_lock(issue_mutex_); }
  uint64_t next_number() { return ++sequence_; }  // issue_order() held
  // Not OK: other ranks have given this call up before it was made here. Issue order held; then the call must
  // not be launched.
  bool given_up_before(uint64_t sequence);
  void end_record(const GroupCall& call, Code code) {
    (call.sequence == 0 ? parts_.messages : parts_.recorder)->end(call.ticket, code, now_ns());
  }
  void done(const GroupCall& call);  // which has ended well
  Status noticed();                  // what has come up about earlier calls, once; OK: nothing
  // Nothing is raised any more about calls up to this one. What nobody here has been told yet is a warning.
  void settle(uint64_t sequence);
  // Asks the peer of a message that does not come where it stands. True: it has been in shutdown() for a while, so what it
  // sent before that would be here.
  bool peer_has_left(Rank peer);
  // How an asynchronous call failed for whose end nobody asks: the next call raises it, or it is logged.
  void unobserved(const Status& outcome);
  void cancel(uint64_t sequence, const Status& why);  // the call of this number ends here with `why`
  // This rank goes, and says goodbye: what still runs in other threads will end, and that is no news for the others.
  void close();
  // Ends everything that runs, now and later, with `why`. The first cause stays.
  void abort(const Status& why) noexcept;
  // Likewise, and tells the other members: there the calls that this rank takes no part in any more end with kPeerExited,
  // and so the group.
  void quit(const Status& why);
  void end_for_all(const Status& why,
                   const CallEnd& report);  // likewise; `report`: how those calls end there

  const GroupNames& names() const { return names_; }
  uint64_t identity() const { return identity_; }  // see identity_of()
  CallId id(uint64_t sequence) const { return {group_, sequence}; }
  const Parts& parts() const { return parts_; }
  FailureState& state() { return state_; }

  // ---- CallListener
  void late_mismatch(uint64_t sequence, Rank peer, const Status& why) override;
  uint64_t digest_of_leaving(uint64_t sequence) const override;

  // ---- ControlledGroup
  std::span<const Rank> world_ranks() const override { return names_.world_ranks(); }
  CallReport report(uint64_t sequence) override;
  void end_call(uint64_t sequence, const CallEnd& why) override;
  void failure_report(uint64_t sequence, const CallEnd& why, std::span<const RankStatus> statuses) override;
  void surveyed(uint64_t sequence, std::span<const RankStatus> statuses) override;
  void peer_leaving(Rank peer) override;
  void peer_exited(Rank peer) override;
  void peer_ended(Rank peer, const Status& why) override;

 private:
  Status look();
  void warn_of_unraised(std::unique_lock<std::mutex>& lock);              // unlocks
  void wrong_after_all(uint64_t sequence, const Status& failure_report);  // the mutex of state_ held
  Status cause() const;                                                   // likewise

  const Parts parts_;
  const uint32_t group_;
  const GroupNames names_;
  const uint64_t identity_;
  // Guards sequence_, and keeps numbering and launching together. It is taken before that of state_.
  std::mutex issue_mutex_;
  uint64_t sequence_ = 0;
  FailureState state_;
};

}  // namespace pc
