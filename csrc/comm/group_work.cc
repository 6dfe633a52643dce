#include "comm/group_work.h"

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

Status GroupWork::wait(const WaitContext& context) {
  if (told_) return outcome_;
  PC_TRY(group_->reentry.check());
  outcome_ = started_.finish(context, [this] { return operation_; });
  told_ = true;
  return outcome_;
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
