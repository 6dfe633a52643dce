#include "operation/message_operation.h"

namespace pc {

Status has_left(const std::string& who) {
  return Status(Code::kPeerExited, who + " is in shutdown(), and takes part in nothing more");
}

std::string MessageOperation::text() const {
  return message_text(what_.verb(), what_.peer, what_.tag, what_.data);
}

void MessageOperation::set_posted(const GroupCalls::Call& call, const MessageId& id, WorkPtr work) {
  call_ = call;
  number_ = id.sequence;
  digest_ = id.digest;
  work_ = std::move(work);
}

MessageWatch& MessageOperation::watch() {
  if (!watch_) watch_.emplace(group_.calls, call_, *work_, std::span(&what_.peer, 1), what_.verb());
  return *watch_;
}

WaitEnd MessageOperation::drive(const WaitContext& context) {
  WaitContext watched = context;
  watched.watch = &watch();
  const auto text = [this] { return this->text(); };
  const Reentry::Scope scope(group_.reentry, watched, text);
  return work_->drive(watched);
}

const Status& MessageOperation::end(WaitContext context) {
  if (ended_) return *ended_;
  context.watch = &watch();
  const auto text = [this] { return this->text(); };
  const Reentry::Scope scope(group_.reentry, context, text);
  const Status ended = work_->wait(context);
  // If the peer knows nothing of it, the next message takes its place.
  const bool has_turn = what_.part == MessagePart::kWhole || what_.part == MessagePart::kOffer;
  if (how_.untold && has_turn) group_.messages.give_back(what_.peer, what_.tag, what_.sends, number_);
  return ended_.emplace(ended.is_ok() ? ended : in_words(ended).with_peer(what_.peer));
}

bool MessageOperation::asks(const WaitContext& context) {
  const Status& ended = end(context);
  return !ended.is_ok() && group_.calls.asks_peer(ended, call_);
}

bool MessageOperation::was_offered(const WaitContext& context) {
  if (end(context).code() != Code::kMismatch || what_.part != MessagePart::kWhole || what_.sends)
    return false;
  if (!is_offer(how_.found.digest) || how_.found.digest != (digest_ | kOfferBit)) return false;
  group_.calls.done(call_);
  return true;
}

bool MessageOperation::refuses_offer() const {
  return ended_ && ended_->code() == Code::kMismatch && !what_.sends && is_offer(how_.found.digest);
}

Status MessageOperation::finish(const WaitContext& context) {
  const Status& ended = end(context);
  if (ended.is_ok()) return group_.calls.done(call_), ended;
  WaitContext probed = context;
  const auto text = [this] { return this->text(); };
  const Reentry::Scope scope(group_.reentry, probed, text);
  return group_.calls.conclude_message(ended, call_, text(), probed);
}

Status MessageOperation::in_words(const Status& ended) const {
  const bool mismatch = ended.code() == Code::kMismatch;
  const bool offered = mismatch && !what_.sends && is_offer(how_.found.digest);
  const std::string theirs =
      !mismatch ? ""
      : offered ? expects_offered() ? "that from a GPU, which only recv() takes into memory of the host"
                                    : "another array, from a GPU"
                : message_found(group_.calls.identity(), how_.found, how_.found_nbytes);
  if (!theirs.empty()) {
    return Status(
        Code::kMismatch,
        "rank " + std::to_string(what_.peer) + (what_.sends ? " expects " : " sent ") + theirs +
            ", this rank " + (what_.sends ? "sends " : "expects ") +
            array_text(what_.data.dtype, what_.data.count, what_.data.layout) +
            (what_.bundle == 0 ? ""
                               : " in a list of " + std::to_string(arrays_of(what_.bundle)) + " arrays"));
  }
  if (ended.code() == Code::kAborted && watch_->peers_have_left()) {
    return has_left(group_.calls.names().full(what_.peer));
  }
  return ended;
}

Status MessageOperation::wait(const WaitContext& context) {
  if (outcome_) return *outcome_;
  PC_TRY(group_.reentry.check());
  outcome_ = finish(context);
  if (offers_ != nullptr && refuses_offer()) offers_->refuse(*this);
  return *outcome_;
}

}  // namespace pc
