#include "operation/group_work.h"

namespace pc {

void NumberedCall::drop(GroupState& group, const Status& why) const {
  if (!exists()) return;
  if (!done()) group.calls.cancel(call.sequence, why);
  const Status ended = work == nullptr ? refused : work->wait({Deadline(call.began)});
  ended.is_ok() ? group.calls.done(call) : group.calls.forsake(ended, call);
}

StartedCall::~StartedCall() {
  if (finished_) return;
  const Status why(Code::kAborted, "dropped by its owner before it was done");
  made.drop(group_, why);
  confirmation.drop(group_, why);
}

// First: others wait in it, and telling may take a while. They shall hear what was wrong, not that this rank was late.
void StartedCall::drop_confirmation(const Status& why) {
  if (!confirmation.exists()) return;
  confirmation.drop(group_, group_.calls.why_given_up(made.call.sequence, why));
  confirmation.call.sequence = 0;
}

bool GroupWork::asks(const WaitContext& context) {
  return started_.asks(context, [this] { return operation_; });
}

Status GroupWork::wait(const WaitContext& context) {
  if (told_) return outcome_;
  PC_TRY(group_->reentry.check());
  outcome_ = started_.finish(context, [this] { return operation_; });
  told_ = true;
  return outcome_;
}

WaitEnd GroupWork::drive(const WaitContext& context) {
  const auto operation = [this] { return operation_; };
  const WaitEnd made = started_.made.drive(*group_, context, operation);
  if (made != WaitEnd::kReady || started_.done()) return made;
  return started_.confirmation.drive(*group_, context, operation);
}

void GroupWork::progress() {
  Work* const work = started_.running().work.get();
  if (work != nullptr) work->progress();
}

void GroupWork::ring(CompletionSink* bell, uint64_t token) {
  for (const NumberedCall* call : {&started_.made, &started_.confirmation}) {
    if (!call->done()) call->work->ring(bell, token);
  }
  if (bell != nullptr && done()) bell->complete(Completion{token, Status(), {}, 0});
}

// Calls that wait for their turn wait for nobody: those before them are looked after.
void GroupWork::look_after(TimePoint now) {
  const NumberedCall& running = started_.running();
  if (running.done() || running.work->waits_for() < 0) return;
  if (!watch_) watch_.emplace(group_->calls, running.call, *running.work, now);
  watch_->look(now);
}

void GroupWork::cancel() {
  for (const NumberedCall* call : {&started_.made, &started_.confirmation}) {
    if (call->work != nullptr) call->work->cancel();
  }
}

Rank GroupWork::waits_for() const {
  const Work* const work = started_.running().work.get();
  return work == nullptr ? -1 : work->waits_for();
}

std::string GroupWork::where() const {
  const Work* const work = started_.running().work.get();
  return work == nullptr ? "ended" : work->where();
}

}  // namespace pc
