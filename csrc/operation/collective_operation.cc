#include "operation/collective_operation.h"

namespace pc {

CollectiveOperation::~CollectiveOperation() {
  if (finished_) return;
  const Status why(Code::kAborted, "dropped by its owner before it was done");
  drop(made, why);
  drop(confirmation, why);
}

void CollectiveOperation::drop(const Call& each, const Status& why) {
  if (!each.exists()) return;
  if (!each.done()) group_.calls.cancel(each.call.sequence, why);
  const Status ended = each.work == nullptr ? each.ended : each.work->wait({Deadline(each.call.began)});
  ended.is_ok() ? group_.calls.done(each.call) : group_.reports.conclude_detached(ended, each.call);
}

// Ends the confirmation before the failure of the call is concluded. Concluding may take a while,
// and the other ranks, which already wait in the confirmation, would report this rank as late.
void CollectiveOperation::drop_confirmation(const Status& why) {
  if (!confirmation.exists()) return;
  drop(confirmation, group_.reports.why_given_up(made.call.sequence, why));
  confirmation.call.sequence = 0;
}

bool CollectiveOperation::requests_reports(const WaitContext& context) {
  const auto text = [this] { return text_; };
  const Status ended = wait_for(made, context, text);
  if (!ended.is_ok()) {
    drop_confirmation(ended);
    return group_.reports.requests_reports(ended, made.call);
  }
  if (!confirmation.exists()) return false;
  const Status confirmed = wait_for(confirmation, context, text);
  return !confirmed.is_ok() && group_.reports.requests_reports(confirmed, confirmation.call);
}

Status CollectiveOperation::wait(const WaitContext& context) {
  if (outcome_) return *outcome_;
  PC_TRY(group_.reentry.check());
  return outcome_.emplace(finish(context, [this] { return text_; }));
}

WaitEnd CollectiveOperation::drive(const Call& each, WaitContext context) {
  if (each.done()) return WaitEnd::kReady;
  CallWatch watch(group_.calls, each.call, *each.work);
  context.watch = &watch;
  const auto text = [this] { return text_; };
  const Reentry::Scope scope(group_.reentry, context, text);
  return each.work->drive(context);
}

WaitEnd CollectiveOperation::drive(const WaitContext& context) {
  const WaitEnd end = drive(made, context);
  return end != WaitEnd::kReady || done() ? end : drive(confirmation, context);
}

void CollectiveOperation::progress() {
  if (Work* const work = running().work.get(); work != nullptr) work->progress();
}

void CollectiveOperation::notify(CompletionSink* notifier, uint64_t token) {
  for (const Call* each : {&made, &confirmation}) {
    if (!each->done()) each->work->notify(notifier, token);
  }
  if (notifier != nullptr && done()) notifier->complete(Completion{token, Status(), {}, 0});
}

// Checks nothing while operations before this one are unfinished, because this operation then does
// not wait for a rank yet.
void CollectiveOperation::look_after(TimePoint now) {
  const Call& each = running();
  if (each.done() || each.work->waits_for() < 0) return;
  if (!watch_) watch_.emplace(group_.calls, each.call, *each.work, now);
  watch_->look(now);
}

void CollectiveOperation::cancel() {
  for (const Call* each : {&made, &confirmation}) {
    if (each->work != nullptr) each->work->cancel();
  }
}

Rank CollectiveOperation::waits_for() const {
  const Work* const work = running().work.get();
  return work == nullptr ? -1 : work->waits_for();
}

std::string CollectiveOperation::where() const {
  const Work* const work = running().work.get();
  return work == nullptr ? "ended" : work->where();
}

}  // namespace pc
