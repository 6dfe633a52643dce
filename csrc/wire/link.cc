#include "wire/link.h"

#include <algorithm>

#include "wire/link_receiver.h"
#include "wire/link_sender.h"

namespace pc {

struct LinkState {
  LinkContext link;
  LinkSender sender{link};
  LinkReceiver receiver{link, sender.clears};
};

namespace {

LinkLimits sane(LinkLimits limits) {
  limits.segment_bytes = std::clamp<std::size_t>(limits.segment_bytes / 64 * 64, 64, kMaxSegmentBytes);
  limits.eager_bytes = std::min(limits.eager_bytes, limits.segment_bytes);  // an eager message is one segment
  limits.max_requests = std::max<uint32_t>(limits.max_requests, 1);
  return limits;
}

Status cancel_arrived(LinkState& state, const FrameHeader& header) {
  auto& [link, sender, receiver] = state;
  if (!is_point_to_point(header.id)) return link.violation(header, "it belongs on a control connection");
  const bool by_receiver = (header.flags & kFlagByReceiver) != 0;
  if ((header.flags & kFlagAnswer) == 0)
    return by_receiver ? sender.receiver_gave_up(header) : receiver.sender_gave_up(header);
  by_receiver ? receiver.settle(receiver.withdrawn_recvs.find(names(header.id)))
              : sender.settle(sender.withdrawn_sends.find(names(header.id)));
  return Status::ok();
}

void goodbye_arrived(LinkState& state) {
  auto& [link, sender, receiver] = state;
  link.goodbye_received = true;
  const Status why = link.about(
      Code::kPeerExited, "rank " + std::to_string(link.peer) + " shut down while this was waiting for it");
  sender.complete_waiting(why);
  receiver.complete_posted(why);
}

Status arrived(LinkState& state, const FrameHeader& header, std::span<const std::byte> description) {
  auto& [link, sender, receiver] = state;
  switch (header.type) {
    case FrameType::kData:
      return (header.flags & kFlagEager) != 0 ? receiver.eager_arrived(header, description)
                                              : receiver.segment_arrived(header);
    case FrameType::kRequest: return receiver.request_arrived(header, description);
    case FrameType::kClear: return sender.clear_arrived(header);
    case FrameType::kCredit: return sender.credit_arrived(header);
    case FrameType::kGoodbye: goodbye_arrived(state); break;
    case FrameType::kCancel: return cancel_arrived(state, header);
    case FrameType::kNotice:
    case FrameType::kDead:
    case FrameType::kPing: return link.violation(header, "it belongs on a control connection");
  }
  return Status::ok();
}

}  // namespace

Link::Link(Rank me, Rank peer, uint32_t epoch, const LinkLimits& limits, FrameIo* frame_io)
    : state_(new LinkState{{me, peer, epoch, sane(limits), frame_io}}) {}
Link::~Link() = default;

// ---- Posting.

void Link::post_send(const SendOp& op) { state_->sender.post_send(op); }
void Link::post_recv(const RecvOp& op) { state_->receiver.post_recv(op); }
void Link::post_probe(const ProbeOp& op) { state_->receiver.post_probe(op); }
bool Link::cancel(const CompletionSink* sink, const Status& why) {
  bool unannounced = state_->sender.cancel(sink, why);
  unannounced = state_->receiver.cancel(sink, why) && unannounced;
  state_->sender.announce_waiting();
  return unannounced;
}
void Link::discard(uint32_t group, uint64_t sequence) {
  state_->link.raise_watermark(group, sequence);
  state_->receiver.drop_below_watermark();
}
void Link::close_group(uint32_t group) {
  state_->link.close_group(group);
  state_->receiver.drop_below_watermark();
}
bool Link::send_at_once(const MessageId& id, uint64_t nbytes, uint64_t description_nbytes) {
  return state_->sender.send_at_once(id, nbytes, kHeaderBytes + description_nbytes + nbytes);
}
bool Link::can_receive_at_once(const FrameHeader& header, const MessageId& id, uint64_t nbytes) const {
  return state_->receiver.can_receive_at_once(header, id, nbytes);
}
void Link::received_at_once(const FrameHeader& header) {
  state_->receiver.charged += LinkReceiver::cost(header);
  state_->receiver.consumed(LinkReceiver::cost(header));
}
bool Link::has_posted() const {
  const auto& [link, sender, receiver] = *state_;
  return !receiver.recvs.empty() || !receiver.probes.empty() || !sender.active.empty() ||
         !sender.leaving.empty() || !sender.waiting.empty();
}

// ---- Outgoing.

std::optional<OutFrame> Link::next_frame(std::size_t capacity) { return state_->sender.next_frame(capacity); }
void Link::written() { state_->sender.written(); }
bool Link::has_output() const {
  const LinkSender& sender = state_->sender;
  return state_->link.failed.is_ok() && (!sender.frames_out.empty() || sender.has_frame());
}

// ---- Incoming.

Result<PayloadDestination> Link::header_arrived(const FrameHeader& header,
                                                std::span<const std::byte> description) {
  auto& [link, sender, receiver] = *state_;
  LinkReceiver::Incoming& incoming = receiver.incoming;
  using Kind = LinkReceiver::Incoming::Kind;
  if (!link.failed.is_ok()) return link.failed;
  if (incoming.kind != Kind::kNothing) {
    return link.about(Code::kInternal, "a header was handed over before the last frame's payload");
  }
  if (link.goodbye_received) return link.violation(header, "it comes after GOODBYE");
  if (header.epoch > link.epoch) {
    return link.violation(header, "epoch " + std::to_string(header.epoch) + " on a link of epoch " +
                                      std::to_string(link.epoch));
  }
  if (header.segment_nbytes > link.limits.segment_bytes) {
    return link.violation(header, "segment of " + std::to_string(header.segment_nbytes) + " bytes, at most " +
                                      std::to_string(link.limits.segment_bytes) + " are allowed");
  }
  incoming.header = header;
  const bool is_below_watermark = header.epoch < link.epoch;  // sent before its sender knew the new epoch
  Status status = is_below_watermark ? receiver.drain(Kind::kDrain, header.segment_nbytes)
                                     : arrived(*state_, header, description);
  if (!status.is_ok()) {
    incoming = {};
    return status;
  }
  const PayloadDestination destination{incoming.where,
                                       incoming.recv != nullptr && incoming.recv->op.consumer == nullptr};
  if (header.segment_nbytes == 0) PC_TRY(receiver.payload_arrived({}));
  return destination;
}

Status Link::payload_arrived() { return state_->receiver.payload_arrived(state_->receiver.incoming.where); }
Status Link::payload_arrived_at(std::span<const std::byte> where_it_is) {
  return state_->receiver.payload_arrived(where_it_is);
}

// ---- The end.

bool Link::peer_sent_goodbye() const { return state_->link.goodbye_received; }
bool Link::sends_goodbye() const { return state_->link.goodbye_wanted; }
void Link::send_goodbye() { state_->link.goodbye_wanted = true; }
void Link::fail(const Status& why) {
  auto& [link, sender, receiver] = *state_;
  if (!link.failed.is_ok()) return;
  link.failed = why.is_ok() ? link.about(Code::kInternal, "the link was ended without a reason") : why;
  link.control.clear();
  link.answers.clear();
  sender.fail(link.failed);
  receiver.fail(link.failed);
}

Link::Counts Link::counts() const {
  const auto& [link, sender, receiver] = *state_;
  return {.posted_sends = sender.active.size() + sender.leaving.size() + sender.waiting.size(),
          .posted_recvs = receiver.recvs.size(),
          .unexpected = receiver.unexpected.size(),
          .requests = receiver.requests.size(),
          .unexpected_nbytes = receiver.unexpected_nbytes,
          .clears = sender.clears.size(),
          .withdrawn = sender.withdrawn_sends.size() + receiver.withdrawn_recvs.size(),
          .unanswered = sender.unanswered,
          .early_clears = receiver.early_clears,
          .credit = sender.credit,
          .charged = receiver.charged,
          .returnable = receiver.returnable};
}

}  // namespace pc
