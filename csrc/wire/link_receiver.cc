// Everything in a header is hostile until it has been compared with the posted operations.
#include "wire/link_receiver.h"

#include <cstring>

namespace pc {
namespace {

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

// ---- Posting.

void LinkReceiver::post_recv(const RecvOp& op) {
  const uint64_t wanted = op.part_nbytes != 0 ? op.part_nbytes : op.nbytes;
  if (op.consumer == nullptr && op.payload.size() < wanted) {
    Status status =
        link.about(Code::kInvalidArgument, "receive of " + std::to_string(wanted) + " bytes into memory of " +
                                               std::to_string(op.payload.size()));
    return complete(op, std::move(status), op.id);
  }
  report_late_mismatches(op);
  if (Unexpected* message = unexpected.find(names(op.id)); message != nullptr)
    return deliver(op, take_out(message));
  if (Status ended = link.why_ended(op.id); !ended.is_ok()) return complete(op, std::move(ended), op.id);
  Announcement* const request = requests.find(names(op.id));
  std::string description;
  if (request != nullptr) {
    Announcement met = link.take_out(requests, request);
    if (met.given_up != Code::kOk) {
      link.answer_cancel(op.id, 0);
      return complete(op, link.given_up(op.id, met.given_up, false), op.id);
    }
    // Also sent for a message of another call: the CLEAR shows the mismatch to the sender.
    link.push_control(FrameType::kClear, op.id, op.nbytes);
    if (foreign(op.id, op.nbytes, met.id, met.nbytes))
      return complete(op, link.mismatch(op.id, op.nbytes, met.id, met.nbytes), met.id, met.nbytes);
    description = std::move(met.description);
  }
  Recv* recv = recv_pool.take();
  recv->op = op;
  recv->announced = recv->cleared = request != nullptr;
  recv->description = std::move(description);
  recvs.push_back(recv);
  if (op.nbytes > link.limits.eager_bytes || requests.size() >= link.limits.max_requests) clear_early(*recv);
}

// Reports messages of earlier collectives that no receive has taken. A collective posts no
// operation before the earlier collectives of its group have received all that was sent for them. A
// message that is left from an earlier collective was therefore sent for another call than the one
// made here, for example with another root. That earlier call has ended, so the mismatch is
// reported as late, and the current call continues. This is checked when a receive is posted and
// when its message arrives. Frames arrive in order, so all that the peer sent before this message
// has arrived by then.
void LinkReceiver::report_late_mismatches(const RecvOp& op) {
  if (unexpected.empty() || op.id.stream.klass != StreamClass::kCollective) return;
  const auto is_late_mismatch = [&](const Unexpected& message) {
    const MessageId& theirs = message.id;
    return theirs.stream.klass == op.id.stream.klass && theirs.stream.group == op.id.stream.group &&
           theirs.sequence < op.id.sequence;
  };
  constexpr int kMostReported = 16;  // limits the reports about a loop of wrong calls
  int reported = 0;
  while (const Unexpected* const late_mismatch = unexpected.find(is_late_mismatch)) {  // the oldest first
    const MessageId id = late_mismatch->id;
    link.raise_watermark(id.stream.group, ++reported < kMostReported ? id.sequence : op.id.sequence - 1);
    drop_below_watermark();
    Status why = link.about(Code::kMismatch, "rank " + std::to_string(link.peer) + " sent " + describe(id) +
                                                 ", which the same call here did not receive: the two had "
                                                 "different roots or otherwise made different calls then");
    complete(op.completions, kLateMismatchToken, std::move(why), id, 0);
  }
}

// Sends CLEAR before the REQUEST has arrived. A sender with max_requests unanswered REQUESTs cannot
// announce another message, so small messages get an early CLEAR too when that limit is reached.
void LinkReceiver::clear_early(Recv& recv) {
  if (recv.cleared || recv.started || early_clears >= link.limits.max_requests) return;
  recv.cleared = recv.early = true;
  ++early_clears;
  link.push_control(FrameType::kClear, recv.op.id, recv.op.nbytes);
}

void LinkReceiver::deliver(const RecvOp& op, Unexpected* message) {
  const MessageId theirs = message->id;
  const uint64_t nbytes = message->nbytes;
  Status status;
  if (foreign(op.id, op.nbytes, theirs, nbytes)) {
    status = link.mismatch(op.id, op.nbytes, theirs, nbytes);
  } else if (nbytes > 0 && op.consumer != nullptr) {
    op.consumer->consume(0, message->bytes());
  } else if (nbytes > 0) {
    std::memcpy(op.payload.data(), message->bytes().data(), nbytes);
  }
  consumed(message->cost());
  release(message);
  complete(op, std::move(status), theirs, nbytes);
}

void LinkReceiver::consumed(uint64_t cost) {
  returnable += cost;
  if (returnable < link.limits.credit_bytes / 2 || link.goodbye_sent || !link.failed.is_ok()) return;
  link.push(link.control, FrameType::kCredit, 0, {.stream = {.klass = StreamClass::kControl}}, 0, returnable);
  charged -= returnable;
  returnable = 0;
}

// ---- Probes.

void LinkReceiver::post_probe(const ProbeOp& op) {
  const auto found = [&op](const auto& item) {
    if (op.description != nullptr) *op.description = item.description;
    complete(op, Status::ok(), item.id, item.nbytes);
  };
  if (const Unexpected* message = unexpected.find(names(op.id)); message != nullptr) return found(*message);
  if (Status ended = link.why_ended(op.id); !ended.is_ok()) return complete(op, std::move(ended), op.id);
  if (const Announcement* request = requests.find(names(op.id)); request != nullptr) return found(*request);
  Probe* const probe = probe_pool.take();
  probe->op = op;
  probes.push_back(probe);
}

void LinkReceiver::notify_probes(const MessageId& id, uint64_t nbytes, const std::string& description) {
  while (Probe* const probe = probes.find(posted_as(id))) {
    const ProbeOp op = take_out(probe);
    if (op.description != nullptr) *op.description = description;
    complete(op, Status::ok(), id, nbytes);
  }
}

// ---- Incoming.

bool LinkReceiver::can_receive_at_once(const FrameHeader& header, const MessageId& id,
                                       uint64_t nbytes) const {
  const bool idle = recvs.empty() && unexpected.empty() && requests.empty() && probes.empty() &&
                    withdrawn_recvs.empty() && incoming.kind == Incoming::Kind::kNothing;
  const bool lives = link.failed.is_ok() && !link.goodbye_received;
  const bool is_it = header.type == FrameType::kData && (header.flags & kFlagEager) != 0 &&
                     header.epoch == link.epoch && header.message_nbytes == nbytes &&
                     same_place(header.id, id) && header.id.digest == id.digest && is_point_to_point(id);
  return idle && lives && is_it && nbytes <= link.limits.eager_bytes &&
         charged + cost(header) <= link.limits.credit_bytes;
}

Status LinkReceiver::request_arrived(const FrameHeader& header, std::span<const std::byte> description) {
  Announcement* const ours = withdrawn_recvs.find(names(header.id));
  Recv* const recv = recvs.find(posted_as(header.id));
  if ((header.flags & kFlagWithdrawn) != 0) {  // a REQUEST that answers an early CLEAR: no message follows
    if (recv != nullptr) forget_early(*recv);
    settle(ours);
    return Status::ok();
  }
  if (recv != nullptr) {
    if (recv->announced || recv->started) return link.violation(header, "it was announced before");
    if (!recv->cleared) link.push_control(FrameType::kClear, recv->op.id, recv->op.nbytes);
    if (foreign(recv->op.id, recv->op.nbytes, header.id, header.message_nbytes)) {
      finish(recv, link.mismatch(recv->op.id, recv->op.nbytes, header.id, header.message_nbytes), header.id,
             header.message_nbytes);
      return Status::ok();
    }
    recv->announced = recv->cleared = true;
    recv->description = text_of(description);
    return Status::ok();
  }
  if (ours != nullptr) {  // this rank withdrew the receive; its CLEAR already answers the REQUEST
    if (header.id.stream.klass == StreamClass::kCollective) settle(ours);
    return Status::ok();
  }
  if (link.below_watermark(header.id)) return link.answer(header, FrameType::kClear, 0);
  if (requests.find(names(header.id)) != nullptr) return link.violation(header, "it was announced before");
  const uint32_t most = link.limits.max_requests;
  if (requests.size() >= most) {
    return link.violation(header, "more than " + std::to_string(most) + " unanswered requests");
  }
  keep_request(header.id, header.message_nbytes, text_of(description));
  return Status::ok();
}

void LinkReceiver::keep_request(const MessageId& id, uint64_t nbytes, std::string description) {
  Announcement* const request = link.remember(requests, id, nbytes);
  request->description = std::move(description);
  if (!probes.empty()) notify_probes(id, nbytes, request->description);
  if (requests.size() < link.limits.max_requests) return;
  for (Recv* recv = recvs.front(); recv != nullptr; recv = recv->next) clear_early(*recv);
}

Status LinkReceiver::eager_arrived(const FrameHeader& header, std::span<const std::byte> description) {
  const uint64_t nbytes = header.message_nbytes;
  const LinkLimits& limits = link.limits;
  if (header.offset != 0 || header.segment_nbytes != nbytes || nbytes > limits.eager_bytes) {
    return link.violation(header, "eager message of " + std::to_string(nbytes) + " bytes, at most " +
                                      std::to_string(limits.eager_bytes) + " in one segment are allowed");
  }
  if (charged + cost(header) > limits.credit_bytes) {
    return link.violation(header,
                          "it exceeds the credit of " + std::to_string(limits.credit_bytes) + " bytes");
  }
  Recv* recv = recvs.find(posted_as(header.id));
  if (recv != nullptr && (recv->announced || recv->started))
    return link.violation(header, "it was announced or sent before");
  charged += cost(header);
  if (recv == nullptr && unwanted(header)) return drain(Incoming::Kind::kEagerDrain, nbytes);
  if (recv == nullptr) {
    Unexpected* message = unexpected_pool.take();
    message->id = header.id;
    message->nbytes = nbytes;
    message->description = text_of(description);
    if (nbytes > message->small.size()) message->large = std::make_unique_for_overwrite<std::byte[]>(nbytes);
    incoming.kind = Incoming::Kind::kUnexpected;
    incoming.unexpected = message;
    incoming.where = message->bytes();
    return Status::ok();
  }
  report_late_mismatches(recv->op);
  if (recv->cleared)  // an early CLEAR crossed this message
    link.push_control(FrameType::kClear, recv->op.id, recv->op.nbytes, kFlagWithdrawn);
  if (foreign(recv->op.id, recv->op.nbytes, header.id, nbytes)) {
    finish(recv, link.mismatch(recv->op.id, recv->op.nbytes, header.id, nbytes), header.id, nbytes);
    return drain(Incoming::Kind::kEagerDrain, nbytes);
  }
  recv->started = true;
  incoming.kind = Incoming::Kind::kEagerReceive;
  incoming.recv = recv;
  incoming.where = recv->op.consumer != nullptr ? staging(nbytes) : recv->op.payload.first(nbytes);
  return Status::ok();
}

Status LinkReceiver::segment_arrived(const FrameHeader& header) {
  Recv* recv = recvs.find(posted_as(header.id));
  if (recv == nullptr && unwanted(header)) return drain(Incoming::Kind::kDrain, header.segment_nbytes);
  if (recv == nullptr || !recv->cleared) return link.violation(header, "it was not cleared");
  if (foreign(recv->op.id, recv->op.nbytes, header.id, header.message_nbytes)) {
    return link.violation(header, "it is not the message that was cleared");
  }
  const uint64_t expected = recv->op.offset + recv->received;
  if (header.offset != expected || header.segment_nbytes > recv->part_nbytes() - recv->received) {
    return link.violation(header, "segment of " + std::to_string(header.segment_nbytes) + " bytes at " +
                                      std::to_string(header.offset) + " where " + std::to_string(expected) +
                                      " was expected");
  }
  if (!recv->started) report_late_mismatches(recv->op);
  recv->started = true;
  incoming.kind = Incoming::Kind::kReceive;
  incoming.recv = recv;
  incoming.where = recv->op.consumer != nullptr
                       ? staging(header.segment_nbytes)
                       : recv->op.payload.subspan(recv->received, header.segment_nbytes);
  return Status::ok();
}

std::span<std::byte> LinkReceiver::staging(std::size_t nbytes) {
  if (nbytes == 0) return {};
  if (!staging_memory)
    staging_memory = std::make_unique_for_overwrite<std::byte[]>(link.limits.segment_bytes);
  return {staging_memory.get(), nbytes};
}

Status LinkReceiver::payload_arrived(std::span<const std::byte> at) {
  using Kind = Incoming::Kind;
  if (at.size() != incoming.where.size())
    return link.about(Code::kInternal, "a payload of another length than its header said");
  const Kind kind = std::exchange(incoming.kind, Kind::kNothing);
  Recv* recv = std::exchange(incoming.recv, nullptr);
  const bool must_store = kind == Kind::kUnexpected || (recv != nullptr && recv->op.consumer == nullptr);
  if (must_store && !at.empty() && at.data() != incoming.where.data()) {
    std::memcpy(incoming.where.data(), at.data(), at.size());
  }
  incoming.where = {};
  if (recv != nullptr) {
    if (recv->op.consumer != nullptr && !at.empty())
      recv->op.consumer->consume(recv->op.offset + recv->received, at);
    recv->received += at.size();
    if (kind == Kind::kEagerReceive) consumed(cost(incoming.header));
    if (recv->received == recv->part_nbytes()) finish(recv, Status::ok(), recv->op.id, recv->op.nbytes);
  } else if (kind == Kind::kUnexpected) {
    store_unexpected(std::exchange(incoming.unexpected, nullptr));
  } else if (kind == Kind::kEagerDrain) {
    consumed(cost(incoming.header));
  }
  return Status::ok();
}

// A receive for the message may have been posted, or its collective given up, between header and
// payload.
void LinkReceiver::store_unexpected(Unexpected* message) {
  if (link.below_watermark(message->id)) {
    consumed(message->cost());
    return release(message);
  }
  Recv* recv = recvs.find(posted_as(message->id));
  if (recv == nullptr) {
    unexpected.push_back(message);
    unexpected_nbytes += message->nbytes;
    if (!probes.empty()) notify_probes(message->id, message->nbytes, message->description);
    return;
  }
  if (recv->cleared) link.push_control(FrameType::kClear, recv->op.id, recv->op.nbytes, kFlagWithdrawn);
  deliver(take_out(recv), message);
}

// ---- Giving up.

bool LinkReceiver::cancel(const CompletionSink* sink, const Status& why) {
  const bool unannounced =
      withdraw(recvs, recv_pool, sink, link, [&](Recv& recv) { return take_back(recv, why); });
  withdraw(probes, probe_pool, sink, link, [](const Probe&) { return true; });
  return unannounced;
}

bool LinkReceiver::take_back(Recv& recv, const Status& why) {
  const MessageId& id = recv.op.id;
  const bool eager_is_arriving = incoming.recv == &recv && incoming.kind == Incoming::Kind::kEagerReceive;
  if (incoming.recv == &recv) drain_incoming();
  if (!recv.started && (!recv.cleared || link.drop_queued(FrameType::kClear, id))) {
    forget_early(recv);
    if (recv.announced)
      // restores the state before the receive was posted
      keep_request(id, recv.op.nbytes, std::move(recv.description));
    return true;
  }
  const bool used = recv.announced || recv.started;  // the peer has used our CLEAR, or will not keep it
  if (!eager_is_arriving && (is_point_to_point(id) || (recv.early && !used))) {
    link.remember(withdrawn_recvs, id, recv.op.nbytes)->counted = std::exchange(recv.early, false);
    if (is_point_to_point(id)) {
      link.push(link.control, FrameType::kCancel, kFlagByReceiver, id, 0, static_cast<uint64_t>(why.code()));
    }
  }
  forget_early(recv);
  return false;
}

void LinkReceiver::drain_incoming() {
  using Kind = Incoming::Kind;
  const bool is_in_staging = incoming.recv->op.consumer != nullptr;
  incoming.recv = nullptr;
  incoming.kind = incoming.kind == Kind::kEagerReceive ? Kind::kEagerDrain : Kind::kDrain;
  if (is_in_staging) return;
  incoming.where = staging(incoming.where.size());
  if (link.frame_io != nullptr) link.frame_io->redirect(incoming.where);
}

void LinkReceiver::drop_below_watermark() {
  while (Unexpected* message =
             unexpected.find([this](const auto& m) { return link.below_watermark(m.id); })) {
    consumed(message->cost());
    release(take_out(message));
  }
  link.drop_below_watermark(requests, FrameType::kClear, 0, 0);
  link.drop_below_watermark(clears, FrameType::kRequest, kFlagWithdrawn, kFlagByReceiver);
}

bool LinkReceiver::unwanted(const FrameHeader& header) {
  Announcement* const ours = withdrawn_recvs.find(names(header.id));
  if (ours == nullptr) return link.below_watermark(header.id);
  const bool eager = (header.flags & kFlagEager) != 0;
  if (eager && ours->counted) link.push_control(FrameType::kClear, ours->id, ours->nbytes, kFlagWithdrawn);
  if (eager || !is_point_to_point(header.id)) settle(ours);  // the CLEAR is used up, or crossed the message
  return true;
}

Status LinkReceiver::sender_gave_up(const FrameHeader& header) {
  // If both ranks gave the message up at the same time, each CANCEL answers the other.
  if (settle(withdrawn_recvs.find(names(header.id)))) return Status::ok();
  if (Announcement* request = requests.find(names(header.id)); request != nullptr) {
    return link.mark(*request, header);
  }
  if (Recv* recv = recvs.find(posted_as(header.id)); recv != nullptr) {
    link.answer_cancel(header.id, 0);
    finish(recv, link.given_up(header.id, code_for(header), false), header.id, 0);
    return Status::ok();
  }
  return link.answer(header, FrameType::kCancel, kFlagAnswer);  // the operation has ended for another reason
}

// ---- The end.

void LinkReceiver::fail(const Status& why) {
  if (incoming.kind == Incoming::Kind::kUnexpected) release(incoming.unexpected);
  incoming = Incoming{};
  complete_posted(why);
  while (!requests.empty()) link.take_out(requests, requests.front());
  while (!withdrawn_recvs.empty()) link.take_out(withdrawn_recvs, withdrawn_recvs.front());
  // Messages that arrived completely before the goodbye can still be received.
  if (link.goodbye_received) return;
  while (!unexpected.empty()) release(take_out(unexpected.front()));
}

void LinkReceiver::complete_posted(const Status& why) {
  while (!recvs.empty()) finish(recvs.front(), why, recvs.front()->op.id, 0);
  while (!probes.empty()) {
    const ProbeOp op = take_out(probes.front());
    complete(op, why, op.id);
  }
}

}  // namespace pc
