// Turns how a call of a group ended into the error that its caller gets, and lets the other ranks know.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/waiter.h"
#include "failure/group_calls.h"

namespace pc {

// Lives as long as its GroupCalls, whose state it shares: the mutex of FailureState guards all that changes here, and
// is let go in waits. Thread-safety: all methods.
class FailureReports {
 public:
  explicit FailureReports(GroupCalls& calls);

  // May wait for what the others know about the call, briefly: only the probe of `context` is asked meanwhile.
  Status conclude(const Status& ended, const GroupCall& call, const std::string& operation,
                  const WaitContext& context);
  // Asks the others now what conclude() would wait for, without waiting. True: their answers may still come. May be
  // called again and again; conclude() follows.
  bool requests_reports(const Status& ended, const GroupCall& call);
  // The same for a call whose end no caller here asks for.
  void conclude_detached(const Status& ended, const GroupCall& call);
  // Likewise for a message between this rank and `ended.peer()`, which concerns nobody else.
  Status conclude_message(const Status& ended, const GroupCall& call, const std::string& operation,
                          const WaitContext& context);
  bool requests_peer_report(const Status& ended,
                            GroupCall& call);  // requests_reports() for conclude_message()
  // Why other ranks have given this call up, as far as this rank has heard.
  Status why_given_up(uint64_t sequence, const Status& otherwise) const;

 private:
  using Lock = std::unique_lock<std::mutex>;  // of the mutex of state_
  std::optional<Status> before_the_end(Lock& lock, uint64_t sequence, const Status& ended,
                                       const WaitContext& context);
  Status report_on(Lock& lock, uint64_t sequence, const CallEnding& ending, const WaitContext& context);
  // What the others know of a call that has ended for all may still come, and is waited for. What a rank says
  // before it goes arrives even if the group has ended by then. The mutex held.
  bool is_awaited(const CallEnding& ending) const;
  Status await_report(uint64_t sequence, const Status& ended, const WaitContext& context);
  Status report(const Status& ended, const GroupCall& call, const std::string& operation) const;
  Status report_message_failure(const Status& ended, const GroupCall& call, const std::string& operation,
                                const WaitContext& context);
  CallEnd call_end_of(const Status& ended) const;  // for the others
  Status first_failure(const Status& ended, const std::string& operation, const WaitContext& context);
  Status with_rank_status(const Status& ended, const WaitContext& context);
  std::vector<RankStatus> survey(uint64_t sequence, const WaitContext& context);
  const Answers* ask(uint64_t question);  // joins the survey; the mutex held
  template <class Ready>
  bool wait_briefly(Lock& lock, const WaitContext& context, TimePoint began, Ready&& ready);
  uint64_t whereabouts(Rank peer) const {  // the number of the question where that rank is
    return CallId::whereabouts(calls_.id(0).group, names_.to_world(names_.rank()), names_.to_world(peer))
        .sequence;
  }

  GroupCalls& calls_;
  FailureState& state_;  // of calls_
  const GroupCalls::Parts& parts_;
  const GroupNames& names_;
};

}  // namespace pc
