#include "comm/group_work.h"

namespace pc {

void NumberedCall::drop(GroupState& group, const Status& why) const {
  if (!exists()) return;
  if (!done()) group.calls.cancel(call.sequence, why);
  const Status ended = work == nullptr ? refused : work->wait({Deadline(call.began)});
  ended.is_ok() ? group.calls.done(call) : group.calls.forsake(why, call);
}

Status StartedCall::confirm(GroupState& group, const Status& ended, const WaitContext& context,
                            const std::function<std::string()>& operation) const {
  if (!ended.is_ok()) return confirmation.drop(group, ended), ended;
  const Status confirmed = confirmation.finish(group, context, operation);
  if (confirmed.code() == Code::kMismatch) return group.calls.settle(made.call.sequence), confirmed;
  const Status wrong = group.calls.take_deferred();                // about the call itself
  if (!confirmed.is_ok()) group.calls.settle(made.call.sequence);  // told once is enough
  return wrong.is_ok() ? confirmed : wrong;
}

GroupWork::~GroupWork() {
  if (told_) return;
  const Status why(Code::kAborted, "dropped by its owner before it was done");
  started_.made.drop(*group_, why);
  started_.confirmation.drop(*group_, why);
}

Status GroupWork::wait(const WaitContext& context) {
  if (told_) return outcome_;
  PC_TRY(group_->reentry.check());
  outcome_ = started_.finish(*group_, context, [this] { return operation_; });
  told_ = true;
  return outcome_;
}

void GroupWork::cancel() {
  for (const NumberedCall* call : {&started_.made, &started_.confirmation}) {
    if (call->work != nullptr) call->work->cancel();
  }
}

const Work* GroupWork::running() const {
  return started_.made.done() && started_.confirmation.exists() ? started_.confirmation.work.get()
                                                                : started_.made.work.get();
}

Rank GroupWork::waits_for() const { return running() == nullptr ? -1 : running()->waits_for(); }

std::string GroupWork::where() const { return running() == nullptr ? "ended" : running()->where(); }

}  // namespace pc
