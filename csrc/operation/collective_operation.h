// A collective of a group while it runs.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "operation/operation.h"
#include "operation/wait_watch.h"

namespace pc {

// What one request makes: the call and, with PYCOLLECTIVE_CHECK=strict, its confirmation, a barrier with the next number
// and the same description. A rank whose part of the call is done early waits there for the others, so it learns there of
// whatever went wrong elsewhere. Both are launched together, so that no other thread's call comes between them.
class CollectiveOperation final : public Operation {
 public:
  // A call that has its number.
  struct Call {
    GroupCall call;  // sequence 0: there is none
    WorkPtr work;    // null: it has ended
    Status ended;    // then: how

    bool exists() const { return call.sequence != 0; }
    bool done() const { return work == nullptr || work->done(); }
    bool failed() const {
      return work == nullptr ? !ended.is_ok() : work->done() && !work->wait({Deadline(call.began)}).is_ok();
    }
  };

  explicit CollectiveOperation(GroupState& group) : Operation(group) {}
  explicit CollectiveOperation(const std::shared_ptr<GroupState>& group) : Operation(*group, group) {}
  ~CollectiveOperation() override;  // it is dropped, if no thread has waited for it

  // To be filled in by its maker. `text` for errors; the caller that waits at once gives it to finish() instead.
  Call made, confirmation;
  void set_text(std::string text) { text_ = std::move(text); }

  // It has ended well, and that is all that its caller has to be told.
  bool finish_at_once() {
    if (made.work != nullptr || !made.ended.is_ok() || confirmation.exists()) return false;
    finished_ = true;
    group_.calls.done(made.call);
    return true;
  }
  // wait() once, with the text of the call as text() gives it.
  template <class Text>
  Status finish(const WaitContext& context, const Text& text) {
    const Status ended = wait_for(made, context, text);
    finished_ = true;
    if (!ended.is_ok()) drop_confirmation(ended);
    if (!confirmation.exists()) return conclude_part(made, ended, context, text);
    group_.calls.done(made.call);
    return conclude_part(confirmation, wait_for(confirmation, context, text), context, text);
  }

  // Nothing has to be waited for any more. A call that went wrong needs no confirmation.
  bool done() const override { return made.done() && (confirmation.done() || made.failed()); }
  WaitEnd drive(const WaitContext& context) override;
  void progress() override;
  void notify(CompletionSink* notifier, uint64_t token) override;
  void look_after(TimePoint now) override;
  bool requests_reports(const WaitContext& context) override;
  uint64_t sequence() const override { return made.call.sequence; }
  std::string text() const override { return text_; }
  Status wait(const WaitContext& context) override;
  void cancel() override;
  Rank waits_for() const override;
  std::string where() const override;

 private:
  const Call& running() const { return confirmation.exists() && made.done() ? confirmation : made; }
  template <class Text>
  Status wait_for(const Call& each, WaitContext context, const Text& text) {
    if (each.work == nullptr) return each.ended;
    CallWatch watch(group_.calls, each.call, *each.work);
    context.watch = &watch;
    const Reentry::Scope scope(group_.reentry, context, text);
    return each.work->wait(context);
  }
  // Puts the end into the words of the group.
  template <class Text>
  Status conclude_part(const Call& each, const Status& ended, const WaitContext& context, const Text& text) {
    if (ended.is_ok()) return group_.calls.done(each.call), ended;
    WaitContext probed = context;
    const Reentry::Scope scope(group_.reentry, probed, text);
    return group_.reports.conclude(ended, each.call, text(), probed);
  }
  WaitEnd drive(const Call& each, WaitContext context);
  // No caller asks how it ends. If it has not, it ends with `why`, for the others too.
  void drop(const Call& each, const Status& why);
  void drop_confirmation(const Status& why);

  bool finished_ = false;
  std::string text_;
  std::optional<CallWatch> watch_;  // of the call, while no thread drives it
  std::optional<Status> outcome_;   // what wait() has told
};

}  // namespace pc
