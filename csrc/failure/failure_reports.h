// Turns how a call of a group ended into what its caller is told, and tells the other ranks. May wait for what they know about it,
// briefly: only the probe of the call is asked meanwhile.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/waiter.h"
#include "failure/group_calls.h"

namespace pc {

// Shared as the GroupCalls are that it is of. Thread-safety: all methods. It has no lock of its own: that of FailureState guards
// what it knows, and is let go while it waits.
class FailureReports {
 public:
  explicit FailureReports(GroupCalls& calls);

  Status conclude(const Status& ended, const GroupCall& call, const std::string& operation,
                  const WaitContext& context);
  // For who cannot wait: asks the others now what conclude() would wait for. True: their answers may still come. Again
  // and again; conclude() follows.
  bool asks(const Status& ended, const GroupCall& call);
  // The same for a call about whose end nobody here wants to know.
  void forsake(const Status& ended, const GroupCall& call);
  // Likewise for a message between this rank and `ended.peer()`, which concerns nobody else.
  Status conclude_message(const Status& ended, const GroupCall& call, const std::string& operation,
                          const WaitContext& context);
  bool asks_peer(const Status& ended, GroupCall& call);  // asks() for conclude_message()
  // By others, as far as this rank has heard.
  Status why_given_up(uint64_t sequence, const Status& otherwise) const;

 private:
  using Lock = std::unique_lock<std::mutex>;  // of the mutex of failures_
  std::optional<Status> before_the_end(Lock& lock, uint64_t sequence, const Status& ended,
                                       const WaitContext& context);
  Status verdict_on(Lock& lock, uint64_t sequence, const CallEnding& ending, const WaitContext& context);
  // What the others know of a call that has ended for all may still come, and is waited for. What a rank says before it goes
  // arrives even if the group has ended by then. The mutex held.
  bool is_awaited(const CallEnding& ending) const;
  Status await_verdict(uint64_t sequence, const Status& ended, const WaitContext& context);
  Status told(const Status& ended, const GroupCall& call, const std::string& operation) const;
  Status told_of_message(const Status& ended, const GroupCall& call, const std::string& operation,
                         const WaitContext& context);
  CallEnd our_word(const Status& ended) const;  // for the others
  Status first_failure(const Status& ended, const std::string& operation, const WaitContext& context);
  Status with_standing(const Status& ended, const WaitContext& context);
  std::vector<Standing> survey(uint64_t sequence, const WaitContext& context);
  const Answers* ask(uint64_t question);  // joins the survey; the mutex held
  template <class Ready>
  bool wait_briefly(Lock& lock, const WaitContext& context, TimePoint began, Ready&& ready);
  uint64_t whereabouts(Rank peer) const {  // the question where it is
    return CallId::whereabouts(calls_.id(0).group, names_.to_world(names_.rank()), names_.to_world(peer))
        .sequence;
  }

  GroupCalls& calls_;
  FailureState& failures_;  // of calls_
  const GroupCalls::Parts& parts_;
  const GroupNames& names_;
};

}  // namespace pc
