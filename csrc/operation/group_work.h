// A collective of a group while it runs, for whoever waits for it: at once, later, or never.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "operation/launched_work.h"
#include "operation/wait_watch.h"

namespace pc {

// A call that has its number.
struct NumberedCall {
  GroupCalls::Call call;       // sequence 0: there is none
  std::unique_ptr<Work> work;  // null: it could not be launched
  Status refused;              // then: why

  bool exists() const { return call.sequence != 0; }
  bool done() const { return work == nullptr || work->done(); }
  bool failed() const {
    return work == nullptr ? !refused.is_ok() : work->done() && !work->wait({Deadline(call.began)}).is_ok();
  }
  template <class Operation>
  WaitEnd drive(GroupState& group, WaitContext context, const Operation& operation) const {
    if (done()) return WaitEnd::kReady;
    CallWatch watch(group.calls, call, *work);
    context.watch = &watch;
    return group.reentry.drive(*work, context, operation);
  }
  template <class Operation>
  Status wait(GroupState& group, WaitContext context, const Operation& operation) const {
    if (work == nullptr) return refused;
    CallWatch watch(group.calls, call, *work);
    context.watch = &watch;
    return group.reentry.wait(*work, context, operation);
  }
  // Puts the end into the words of the group. `operation()` is the call's text.
  template <class Operation>
  Status tell(GroupState& group, const Status& ended, const WaitContext& context,
              const Operation& operation) const {
    if (!ended.is_ok()) return group.calls.conclude(ended, call, operation(), context.interrupted);
    group.calls.done(call);
    return ended;
  }
  // Nobody wants to know how it ends. If it has not, it ends with `why`, for the others too.
  void drop(GroupState& group, const Status& why) const;
};

// What one request makes: the call and, with PYCOLLECTIVE_CHECK=strict, its confirmation, a barrier with the next number
// and the same description. A rank whose part of the call is done early waits there for the others, so it hears there of
// whatever went wrong elsewhere. Both are launched together, so that no other thread's call comes between them.
class StartedCall {
 public:
  explicit StartedCall(GroupState& group) : group_(group) {}
  ~StartedCall();  // nobody has waited for it: it is dropped
  StartedCall(const StartedCall&) = delete;
  StartedCall& operator=(const StartedCall&) = delete;

  NumberedCall made, confirmation;

  // It has ended well, and that is all that its caller has to be told.
  bool finish_at_once() {
    if (made.work != nullptr || !made.refused.is_ok() || confirmation.exists()) return false;
    finished_ = true;
    group_.calls.done(made.call);
    return true;
  }
  // Nothing has to be waited for any more. A call that went wrong needs no confirmation.
  bool done() const { return made.done() && (confirmation.done() || made.failed()); }
  // See LaunchedWork.
  template <class Operation>
  bool asks(const WaitContext& context, const Operation& operation) {
    const Status ended = made.wait(group_, context, operation);
    if (!ended.is_ok()) {
      drop_confirmation(ended);
      return group_.calls.asks(ended, made.call);
    }
    if (!confirmation.exists()) return false;
    const Status confirmed = confirmation.wait(group_, context, operation);
    return !confirmed.is_ok() && group_.calls.asks(confirmed, confirmation.call);
  }
  const NumberedCall& running() const { return confirmation.exists() && made.done() ? confirmation : made; }
  // Once.
  template <class Operation>
  Status finish(const WaitContext& context, const Operation& operation) {
    const Status ended = made.wait(group_, context, operation);
    finished_ = true;
    if (!ended.is_ok()) drop_confirmation(ended);
    if (!confirmation.exists()) return made.tell(group_, ended, context, operation);
    group_.calls.done(made.call);
    return confirmation.tell(group_, confirmation.wait(group_, context, operation), context, operation);
  }

 private:
  void drop_confirmation(const Status& why);

  GroupState& group_;
  bool finished_ = false;
};

class GroupWork final : public LaunchedWork {
 public:
  explicit GroupWork(std::shared_ptr<GroupState> group) : LaunchedWork(std::move(group)), started_(*group_) {}
  bool done() const override { return started_.done(); }
  WaitEnd drive(const WaitContext& context) override;
  void progress() override;
  void ring(CompletionSink* bell, uint64_t token) override;
  void look_after(TimePoint now) override;
  bool asks(const WaitContext& context) override;
  uint64_t sequence() const override { return started_.made.call.sequence; }
  const std::string& operation() const override { return operation_; }
  Status wait(const WaitContext& context) override;
  void cancel() override;
  Rank waits_for() const override;
  std::string where() const override;

  StartedCall& started() { return started_; }  // to be filled in by whoever makes this
  void set_operation(std::string text) { operation_ = std::move(text); }

 private:
  StartedCall started_;
  std::optional<CallWatch> watch_;  // of the call, while nobody drives it
  std::string operation_;
  bool told_ = false;
  Status outcome_;
};

}  // namespace pc
