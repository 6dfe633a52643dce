// A collective of a group while it runs.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "operation/operation.h"
#include "operation/wait_watch.h"

namespace pc {

// The operation of one request. It consists of the call and, with PYCOLLECTIVE_CHECK=strict, of a
// confirmation: a barrier with the next number and the same description. A rank that completes its
// part of the call early waits in the confirmation for the other ranks, and receives there every
// error that they had in the call. The call and the confirmation are launched together, so that
// their numbers are consecutive even if other threads make calls.
class CollectiveOperation final : public Operation {
 public:
  // A call that has a number.
  struct Call {
    GroupCall call;  // sequence 0: this call does not exist
    WorkPtr work;    // null: the call has ended
    Status ended;    // outcome, once `work` is null

    bool exists() const { return call.sequence != 0; }
    bool done() const { return work == nullptr || work->done(); }
    bool failed() const {
      return work == nullptr ? !ended.is_ok() : work->done() && !work->wait({Deadline(call.began)}).is_ok();
    }
  };

  explicit CollectiveOperation(GroupState& group) : Operation(group) {}
  explicit CollectiveOperation(const std::shared_ptr<GroupState>& group) : Operation(*group, group) {}
  ~CollectiveOperation() override;  // ends the call if no thread has waited for it

  // Set by the code that creates the operation. The text describes the call in errors; a caller
  // that waits at once passes the text to finish() instead.
  Call made, confirmation;
  void set_text(std::string text) { text_ = std::move(text); }

  // Returns true, and finishes the operation, if the call has already succeeded and needs no
  // confirmation.
  bool finish_at_once() {
    if (made.work != nullptr || !made.ended.is_ok() || confirmation.exists()) return false;
    finished_ = true;
    group_.calls.done(made.call);
    return true;
  }
  // Like wait(), but may be called only once. `text()` returns the description of the call.
  template <class Text>
  Status finish(const WaitContext& context, const Text& text) {
    const Status ended = wait_for(made, context, text);
    finished_ = true;
    if (!ended.is_ok()) drop_confirmation(ended);
    if (!confirmation.exists()) return conclude_part(made, ended, context, text);
    group_.calls.done(made.call);
    return conclude_part(confirmation, wait_for(confirmation, context, text), context, text);
  }

  // Returns true if no wait is needed any more. A failed call needs no confirmation.
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
  // Turns the end of a call into the error that its caller gets: see FailureReports.
  template <class Text>
  Status conclude_part(const Call& each, const Status& ended, const WaitContext& context, const Text& text) {
    if (ended.is_ok()) return group_.calls.done(each.call), ended;
    WaitContext probed = context;
    const Reentry::Scope scope(group_.reentry, probed, text);
    return group_.reports.conclude(ended, each.call, text(), probed);
  }
  WaitEnd drive(const Call& each, WaitContext context);
  // Concludes a call that no caller waits for. If the call has not ended, ends it with `why` on all
  // ranks.
  void drop(const Call& each, const Status& why);
  void drop_confirmation(const Status& why);

  bool finished_ = false;
  std::string text_;
  std::optional<CallWatch> watch_;  // watches the call while no thread drives it
  std::optional<Status> outcome_;   // what wait() has returned
};

}  // namespace pc
