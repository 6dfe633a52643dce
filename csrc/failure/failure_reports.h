// Turns the end of a group's call into the error that its caller gets, and notifies the other
// ranks.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/waiter.h"
#include "failure/group_calls.h"

namespace pc {

// Lives as long as its GroupCalls and shares its FailureState. The mutex of FailureState guards
// everything that changes here, and is released during waits. Thread-safety: all methods.
class FailureReports {
 public:
  explicit FailureReports(GroupCalls& calls);

  // Returns the error for the caller of a failed call. May wait briefly for other ranks' reports on
  // the call. Of `context`, only the interrupt probe can end this wait.
  Status conclude(const Status& ended, const GroupCall& call, const std::string& operation,
                  const WaitContext& context);
  // Non-blocking variant of conclude(): requests reports from the other ranks. Returns true while
  // reports are outstanding. It may be called repeatedly; conclude() must follow.
  bool requests_reports(const Status& ended, const GroupCall& call);
  // The variant of conclude() for an asynchronous call for which no caller on this rank waits.
  void conclude_detached(const Status& ended, const GroupCall& call);
  // The variant of conclude() for a message, which concerns only this rank and `ended.peer()`.
  Status conclude_message(const Status& ended, const GroupCall& call, const std::string& operation,
                          const WaitContext& context);
  bool requests_peer_report(const Status& ended,
                            GroupCall& call);  // variant of requests_reports() before conclude_message()
  // Returns the reason for which other ranks have given this call up, or `otherwise` if this rank
  // knows of none.
  Status why_given_up(uint64_t sequence, const Status& otherwise) const;

 private:
  using Lock = std::unique_lock<std::mutex>;  // holds the mutex of state_
  std::optional<Status> before_the_end(Lock& lock, uint64_t sequence, const Status& ended,
                                       const WaitContext& context);
  Status report_on(Lock& lock, uint64_t sequence, const CallEnding& ending, const WaitContext& context);
  // Returns true if more reports on a call that has ended on all ranks may arrive and are worth
  // waiting for. A report that a rank sent before it left arrives even after the group has ended.
  // The caller holds the mutex.
  bool is_awaited(const CallEnding& ending) const;
  Status await_report(uint64_t sequence, const Status& ended, const WaitContext& context);
  Status report(const Status& ended, const GroupCall& call, const std::string& operation) const;
  Status report_message_failure(const Status& ended, const GroupCall& call, const std::string& operation,
                                const WaitContext& context);
  CallEnd call_end_of(const Status& ended) const;  // the end as reported to the other ranks
  Status first_failure(const Status& ended, const std::string& operation, const WaitContext& context);
  Status with_rank_status(const Status& ended, const WaitContext& context);
  std::vector<RankStatus> survey(uint64_t sequence, const WaitContext& context);
  // joins the inquiry, and sends it if no other thread has sent it; the caller holds the mutex
  const Answers* ask(uint64_t question);
  template <class Ready>
  bool wait_briefly(Lock& lock, const WaitContext& context, TimePoint began, Ready&& ready);
  // Returns the number of the inquiry about what that rank is doing.
  uint64_t position_query(Rank peer) const {
    return CallId::position_query(calls_.id(0).group, names_.to_world(names_.rank()), names_.to_world(peer))
        .sequence;
  }

  GroupCalls& calls_;
  FailureState& state_;  // the state of calls_
  const GroupCalls::Parts& parts_;
  const GroupNames& names_;
};

}  // namespace pc
