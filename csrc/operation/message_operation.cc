#include "operation/message_operation.h"

namespace pc {

Status has_left(const std::string& rank_name) {
  return Status(Code::kPeerExited, rank_name + " is in shutdown(), and takes part in nothing more");
}

std::string MessageOperation::text() const {
  return message_text(message_.verb(), message_.peer, message_.tag, message_.array());
}

MessageWatch& MessageOperation::watch() {
  if (!watch_) watch_.emplace(group_.calls, call_, *work_, std::span(&message_.peer, 1), message_.verb());
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
  // If the peer was not informed of this message, a later message reuses the number.
  if (how_.unannounced && (message_.is_whole() || message_.is_offer()))
    group_.messages.give_back(message_.peer, message_.tag, message_.sends, message_.id.sequence);
  return ended_.emplace(ended.is_ok() ? ended : in_words(ended).with_peer(message_.peer));
}

bool MessageOperation::requests_reports(const WaitContext& context) {
  const Status& ended = end(context);
  return !ended.is_ok() && group_.reports.requests_peer_report(ended, call_);
}

bool MessageOperation::was_offered(const WaitContext& context) {
  if (end(context).code() != Code::kMismatch || !message_.is_whole() || message_.sends) return false;
  if (!is_offer(how_.found.digest) || how_.found.digest != (message_.id.digest | kOfferBit)) return false;
  group_.calls.done(call_);
  return true;
}

bool MessageOperation::refuses_offer() const {
  return ended_ && ended_->code() == Code::kMismatch && !message_.sends && is_offer(how_.found.digest);
}

Status MessageOperation::finish(const WaitContext& context) {
  const Status& ended = end(context);
  if (ended.is_ok()) return group_.calls.done(call_), ended;
  WaitContext probed = context;
  const auto text = [this] { return this->text(); };
  const Reentry::Scope scope(group_.reentry, probed, text);
  return group_.reports.conclude_message(ended, call_, text(), probed);
}

Status MessageOperation::in_words(const Status& ended) const {
  const bool mismatch = ended.code() == Code::kMismatch;
  const bool offered = mismatch && !message_.sends && is_offer(how_.found.digest);
  const std::string theirs =
      !mismatch ? ""
      : offered ? expects_offered() ? "that from a GPU, which only recv() takes into memory of the host"
                                    : "another array, from a GPU"
                : message_found(group_.calls.identity(), how_.found, how_.found_nbytes);
  if (!theirs.empty()) {
    const ConstBuffer array = message_.array();
    return Status(Code::kMismatch,
                  "rank " + std::to_string(message_.peer) + (message_.sends ? " expects " : " sent ") +
                      theirs + ", this rank " + (message_.sends ? "sends " : "expects ") +
                      array_text(array.dtype, array.count, array.layout) +
                      (message_.bundle == 0
                           ? ""
                           : " in a list of " + std::to_string(arrays_of(message_.bundle)) + " arrays"));
  }
  if (ended.code() == Code::kAborted && watch_->peers_have_left()) {
    return has_left(group_.calls.names().full(message_.peer));
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
