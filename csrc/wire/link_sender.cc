#include "wire/link_sender.h"

#include <algorithm>

namespace pc {
namespace {

// Returns the number of payload bytes to send next. Does not cut off small segments: a small
// segment would later free only a small space, so all later segments would be small too.
std::size_t next_segment(const LinkSender::Send& send, std::size_t segment_bytes, std::size_t capacity) {
  const std::size_t rest = send.part_nbytes() - send.given;
  const std::size_t most = std::min(rest, segment_bytes);
  if (send.eager) return most;
  if (capacity < std::min(most, OutFrame::kLeastCut)) return 0;
  const ConstIoVec payload = send.op.payload.slice(send.given, std::min(most, capacity));
  const std::size_t count = payload.within(OutFrame::kMaxPieces, payload.size());
  return count < rest ? count / 64 * 64 : count;
}

}  // namespace

void LinkSender::post_send(const SendOp& op) {
  const uint64_t nbytes = op.message_nbytes != 0 ? op.message_nbytes : op.payload.size();
  if (Status ended = link.why_ended(op.id); !ended.is_ok()) return complete(op, std::move(ended), op.id);
  Announcement* const clear = clears.find(names(op.id));
  if (clear != nullptr) {
    const Announcement met = link.take_out(clears, clear);
    if (met.given_up != Code::kOk) {
      link.answer_cancel(op.id, kFlagByReceiver);
      return complete(op, link.given_up(op.id, met.given_up, true), op.id);
    }
    if (foreign(op.id, nbytes, met.id, met.nbytes)) {
      link.push_control(FrameType::kRequest, op.id, nbytes);  // so that the peer detects the mismatch, too
      return complete(op, link.mismatch(op.id, nbytes, met.id, met.nbytes), met.id, met.nbytes);
    }
  }
  Send* send = send_pool.take();
  send->op = op;
  if (clear != nullptr) {
    send->cleared = true;
    active.push_back(send);
  } else if (nbytes <= link.limits.eager_bytes && send->cost() <= credit &&
             op.payload.within(OutFrame::kMaxPieces, nbytes) == nbytes) {
    credit -= send->cost();
    send->eager = true;
    active.push_back(send);
  } else {
    waiting.push_back(send);
    ++held_back;
    announce_waiting();
  }
}

bool LinkSender::send_at_once(const MessageId& id, uint64_t nbytes, uint64_t cost) {
  const bool idle =
      link.control.empty() && link.answers.empty() && active.empty() && frames_out.empty() && clears.empty();
  const bool lives = link.failed.is_ok() && !link.goodbye_wanted && !link.goodbye_received;
  if (!idle || !lives || nbytes > link.limits.eager_bytes || cost > credit || !is_point_to_point(id))
    return false;
  credit -= cost;
  return true;
}

void LinkSender::announce_waiting() {
  while (held_back > 0 && unanswered < link.limits.max_requests) {
    Send* send = waiting.find([](const Send& s) { return !s.announced; });
    send->announced = true;
    --held_back;
    ++unanswered;
    link.push_control(FrameType::kRequest, send->op.id, send->nbytes());
  }
}

void LinkSender::finish(Send* send, NodeList<Send>& from, Status status, const MessageId& found,
                        uint64_t nbytes) {
  const SendOp op = send->op;
  from.remove(send);
  send_pool.give_back(send);
  complete(op, std::move(status), found, nbytes);
}

// ---- Frames to write.

std::optional<OutFrame> LinkSender::next_frame(std::size_t capacity) {
  if (!link.failed.is_ok() || !has_frame()) return std::nullopt;
  std::optional<OutFrame> out(std::in_place);
  FrameHeader& header = out->header;
  Send* send = nullptr;
  if (!link.control.empty()) {
    out->description = description_of_request(link.control.front());
    if (out->description.size() > capacity) return std::nullopt;
    header = link.control.pop();
  } else if (!link.answers.empty()) {
    header = link.answers.pop();
  } else if (!active.empty()) {
    send = active.front();
    if (send->eager) out->description = send->op.description;
    const std::size_t count = next_segment(*send, link.limits.segment_bytes, capacity);
    if (count == 0 && send->part_nbytes() > 0) return std::nullopt;
    if (count + out->description.size() > capacity) return std::nullopt;
    out->payload = give_segment(*send, count, header);
  } else {
    header.type = FrameType::kGoodbye;
    header.epoch = link.epoch;
    header.id.stream.klass = StreamClass::kControl;
    link.goodbye_sent = true;
  }
  frames_out.push(send);
  header.description_nbytes = static_cast<uint32_t>(out->description.size());
  return out;
}

// A REQUEST that only answers a CLEAR needs no description.
std::span<const std::byte> LinkSender::description_of_request(const FrameHeader& header) const {
  if (header.type != FrameType::kRequest || !is_point_to_point(header.id)) return {};
  const Send* const send = waiting.find(posted_as(header.id));
  return send == nullptr ? std::span<const std::byte>{} : send->op.description;
}

ConstIoVec LinkSender::give_segment(Send& send, std::size_t count, FrameHeader& header) {
  const ConstIoVec payload = send.op.payload.slice(send.given, count);
  header.flags = send.eager ? kFlagEager : uint8_t{0};
  header.epoch = link.epoch;
  header.id = send.op.id;
  header.message_nbytes = send.nbytes();
  header.offset = send.op.offset + send.given;
  header.segment_nbytes = static_cast<uint32_t>(count);
  send.given += count;
  ++send.out;
  active.remove(&send);
  // round-robin: an unfinished send goes behind the other active sends
  (send.given < send.part_nbytes() ? active : leaving).push_back(&send);
  return payload;
}

void LinkSender::written() {
  if (frames_out.empty()) return;
  Send* const send = frames_out.pop();
  if (send == nullptr || --send->out > 0 || send->given < send->part_nbytes()) return;
  finish(send, leaving, Status::ok(), send->op.id, send->nbytes());
}

// ---- Answers of the peer.

Status LinkSender::clear_arrived(const FrameHeader& header) {
  if ((header.flags & kFlagWithdrawn) != 0) {
    if (Announcement* clear = clears.find(names(header.id)); clear != nullptr) link.take_out(clears, clear);
    return Status::ok();
  }
  if (Send* send = waiting.find(posted_as(header.id)); send != nullptr) {
    const MessageId& id = send->op.id;
    if (send->announced)
      --unanswered;
    else
      --held_back;
    if (foreign(id, send->nbytes(), header.id, header.message_nbytes)) {
      if (!send->announced)
        // The peer must detect the mismatch, too.
        link.push_control(FrameType::kRequest, id, send->nbytes());
      finish(send, waiting, link.mismatch(id, send->nbytes(), header.id, header.message_nbytes), header.id,
             header.message_nbytes);
    } else {
      send->cleared = true;
      waiting.remove(send);
      active.push_back(send);
    }
    announce_waiting();
    return Status::ok();
  }
  if (Announcement* ours = withdrawn_sends.find(names(header.id)); ours != nullptr) {
    if (header.id.stream.klass == StreamClass::kCollective) settle(ours);
    return Status::ok();
  }
  if (link.below_watermark(header.id)) return link.answer(header, FrameType::kRequest, kFlagWithdrawn);
  const auto is_sending_it = [&](const Send& s) { return !s.eager && same_place(s.op.id, header.id); };
  if (active.find(is_sending_it) != nullptr || leaving.find(is_sending_it) != nullptr ||
      clears.find(names(header.id)) != nullptr)
    return link.violation(header, "it was cleared before");
  if (clears.size() >= link.limits.max_requests) {
    return link.violation(header, "more than " + std::to_string(link.limits.max_requests) + " early clears");
  }
  link.remember(clears, header.id, header.message_nbytes);
  return Status::ok();
}

Status LinkSender::credit_arrived(const FrameHeader& header) {
  if (header.offset > link.limits.credit_bytes || credit + header.offset > link.limits.credit_bytes) {
    return link.violation(header,
                          "it returns " + std::to_string(header.offset) + " bytes, more than were spent");
  }
  credit += header.offset;
  return Status::ok();
}

// ---- Giving up.

bool LinkSender::cancel(const CompletionSink* sink, const Status& why) {
  bool unannounced = true;
  for (NodeList<Send>* list : {&active, &leaving, &waiting}) {
    unannounced = withdraw(*list, send_pool, sink, link, [&](Send& send) { return take_back(send, why); }) &&
                  unannounced;
  }
  return unannounced;
}

bool LinkSender::take_back(Send& send, const Status& why) {
  const MessageId& id = send.op.id;
  if (send.eager && send.out == 0) {
    credit += send.cost();
    return true;
  }
  const bool asked = send.announced && !link.drop_queued(FrameType::kRequest, id);
  if (!asked && send.given == 0 && send.out == 0) {
    if (send.cleared) {
      link.remember(clears, id, send.nbytes());  // restores the state before the send was posted
    } else if (send.announced) {
      --unanswered;
    } else {
      --held_back;
    }
    return true;
  }
  detach(send);
  if (send.out > 0 && send.given == send.part_nbytes()) return false;  // all of it is in flight
  if (is_point_to_point(id)) {
    link.push(link.control, FrameType::kCancel, 0, id, 0, static_cast<uint64_t>(why.code()));
  } else if (send.cleared) {
    return false;  // after its CLEAR, the peer sends nothing more about a collective's message
  }
  link.remember(withdrawn_sends, id, send.nbytes())->counted = !send.cleared;
  return false;
}

// Ends the send of a message that the peer no longer receives. An eager send is not affected: the
// peer discards its message, and withdraws the CLEAR if it has sent one.
Status LinkSender::receiver_gave_up(const FrameHeader& header) {
  if (settle(withdrawn_sends.find(names(header.id)))) return Status::ok();
  if (Announcement* clear = clears.find(names(header.id)); clear != nullptr) return link.mark(*clear, header);
  for (NodeList<Send>* list : {&active, &leaving}) {
    Send* const send = list->find([&](const Send& s) { return !s.eager && same_place(s.op.id, header.id); });
    if (send == nullptr) continue;
    detach(*send);
    link.answer_cancel(header.id, kFlagByReceiver);
    finish(send, *list, link.given_up(header.id, code_for(header), true), header.id, 0);
    return Status::ok();
  }
  return link.answer(header, FrameType::kCancel, kFlagByReceiver | kFlagAnswer);
}

// ---- The end.

void LinkSender::fail(const Status& why) {
  frames_out.clear();
  complete_all(active, why);
  complete_all(leaving, why);
  complete_waiting(why);
  while (!clears.empty()) link.take_out(clears, clears.front());
  while (!withdrawn_sends.empty()) link.take_out(withdrawn_sends, withdrawn_sends.front());
}

}  // namespace pc
