// The calls of one group: their numbers and records, the reports of other ranks on them, and the
// end of the group. A call that any rank gives up ends on all ranks, and the group continues with
// the next one. The death of a member ends the group.
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
  uint64_t ticket = 0;    // its record in the flight recorder
  TimePoint began;
  bool waits = false;  // the caller waits for it immediately
  bool leaving = false;
  uint64_t confirms = 0;  // not 0: the number of the call that this one confirms
  bool asked = false;     // for a message: requests_peer_report() has sent an inquiry
};

// What this rank knows about failed calls and about the end of the group. Shared by GroupCalls,
// which receives the reports, and by FailureReports, which passes them on.
struct FailureState {
  explicit FailureState(Rank rank) : late_errors(rank) {}

  std::atomic<uint32_t> ended{0};  // not 0: `cause` is set and no longer changes
  mutable std::mutex mutex;        // guards the members below
  Status cause;
  bool closing = false;         // this rank is leaving
  bool cause_reported = false;  // a call has returned `cause`
  CallEndings endings;
  LateErrors late_errors;
  Surveys surveys;
  std::map<Rank, TimePoint> leaving;  // ranks in shutdown(), and when this was first reported
  std::condition_variable changed;    // signals a failure report, a survey, or the end of the group
};

// Shared by a group, the control thread, and every Work that the group launched. A Work may outlive
// the group and the control thread. Thread-safety: all methods.
class GroupCalls final : public ControlledGroup, public CallListener {
 public:
  // The pointers are not owned, and no call uses them once abort() has returned. Executor and
  // control are null if the group has one rank.
  struct Parts {
    Reactor* reactor = nullptr;
    Executor* executor = nullptr;
    ControlThread* control = nullptr;
    CompletionSink* group_ends = nullptr;  // completed when the group ends; null if the reactor is null
    // `recorder` is for collectives. `messages` is for messages, which may be far more numerous.
    std::shared_ptr<FlightRecorder> recorder, messages;
    Logger log = Logger();
    double warn_after_s = 30;  // seconds of waiting in one call before a warning
    bool compares = true;      // calls carry digests, by which ranks detect mismatches
    bool confirms = false;     // after every call a confirmation reports its errors on other ranks
  };

  GroupCalls(const Parts& parts, uint32_t group, GroupNames names);

  // ---- around a call
  //
  // The word becomes nonzero when the group ends; for WaitContext.
  const std::atomic<uint32_t>* word() const { return &state_.ended; }
  // Returns an error if the group has ended, or if an earlier call of this rank is now known to be
  // wrong. The error about an earlier call is returned only once.
  Status before() {
    return state_.ended.load(std::memory_order_acquire) == 0 && !state_.late_errors.any() ? Status::ok()
                                                                                          : look();
  }
  Status alive() const;  // returns an error if the group has ended
  // Returns an error if a member has quit. The next numbered call here would end with that error.
  // For calls without a number, because a quit does not end those.
  Status quit_by_others();
  // A caller holds this lock from numbering a call until its launch, so that calls start in the
  // order of their numbers.
  std::unique_lock<std::mutex> issue_order() { return std::unique_lock(issue_mutex_); }
  uint64_t next_number() { return ++sequence_; }  // the caller holds issue_order()
  // Returns true if another rank gave the call up before this rank made it; then this rank must not
  // launch it. The caller holds issue_order().
  bool given_up_before(uint64_t sequence);
  void end_record(const GroupCall& call, Code code) {
    (call.sequence == 0 ? parts_.messages : parts_.recorder)->end(call.ticket, code, now_ns());
  }
  void done(const GroupCall& call);  // the call has succeeded
  Status noticed();                  // returns, once, an error about earlier calls; OK if there is none
  // From now on no error about calls up to `sequence` is raised. Pending errors are logged as
  // warnings.
  void settle(uint64_t sequence);
  // For a message that does not arrive: requests the status of `peer`. Returns true if `peer` has
  // been in shutdown() for so long that everything it sent before would have arrived.
  bool peer_has_left(Rank peer);
  // Records the failure of an asynchronous call for which no caller waits. The next call raises the
  // failure; if there is none, the failure is logged.
  void unobserved(const Status& outcome);
  void cancel(uint64_t sequence, const Status& why);  // ends the call with this number on this rank
  // Marks this rank as leaving. Calls that still run in other threads then end without a report to
  // the other ranks.
  void close();
  // Ends all running and later calls with `why`. Has no effect if the group has already ended.
  void abort(const Status& why) noexcept;
  // Like abort(), and ends the group on the other members too: their calls that need this rank end
  // with kPeerExited.
  void quit(const Status& why);
  // Like quit(), but the calls of the other members end with `report`.
  void end_for_all(const Status& why, const CallEnd& report);

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
  void warn_of_unraised(std::unique_lock<std::mutex>& lock);  // releases `lock`
  // the caller holds the mutex of state_
  void wrong_after_all(uint64_t sequence, const Status& failure_report);
  Status cause() const;  // the caller holds the mutex of state_

  const Parts parts_;
  const uint32_t group_;
  const GroupNames names_;
  const uint64_t identity_;
  // Guards sequence_, and makes numbering and launching atomic. It is taken before the mutex of
  // state_.
  std::mutex issue_mutex_;
  uint64_t sequence_ = 0;
  FailureState state_;
};

}  // namespace pc
