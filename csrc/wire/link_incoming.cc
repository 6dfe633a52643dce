// What arrives from the peer. Everything in a header is hostile until it has been compared with what we posted.
#include <cstring>
#include <utility>

#include "wire/link_state.h"

namespace pc {
namespace {

const char* name_of(FrameType type) {
  switch (type) {
    case FrameType::kData: return "DATA";
    case FrameType::kRequest: return "REQUEST";
    case FrameType::kClear: return "CLEAR";
    case FrameType::kCredit: return "CREDIT";
    case FrameType::kGoodbye: return "GOODBYE";
    case FrameType::kNotice: return "NOTICE";
    case FrameType::kDead: return "DEAD";
    case FrameType::kCancel: return "CANCEL";
    case FrameType::kPing: return "PING";
  }
  return "unknown frame";
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

Status LinkState::violation(const FrameHeader& header, const std::string& what) const {
  return about(Code::kPeerFailure, "rank " + std::to_string(peer) + " broke the protocol: " +
                                       name_of(header.type) + " for " + describe(header.id) + ": " + what);
}

Result<PayloadDestination> LinkState::header_arrived(const FrameHeader& header,
                                                     std::span<const std::byte> description) {
  if (!failed.is_ok()) return failed;
  if (incoming.kind != Incoming::Kind::kNothing) {
    return about(Code::kInternal, "a header was handed over before the last frame's payload");
  }
  if (goodbye_received) return violation(header, "it comes after GOODBYE");
  if (header.epoch > epoch) {
    return violation(
        header, "epoch " + std::to_string(header.epoch) + " on a link of epoch " + std::to_string(epoch));
  }
  if (header.segment_nbytes > limits.segment_bytes) {
    return violation(header, "segment of " + std::to_string(header.segment_nbytes) + " bytes, at most " +
                                 std::to_string(limits.segment_bytes) + " are allowed");
  }
  incoming.header = header;
  if (header.epoch < epoch) {  // fenced: sent before its writer knew better
    incoming.kind = Incoming::Kind::kSwallow;
    incoming.where = staging(header.segment_nbytes);
  } else {
    Status status;
    switch (header.type) {
      case FrameType::kData: status = data_arrived(header, description); break;
      case FrameType::kRequest: status = request_arrived(header, description); break;
      case FrameType::kClear: status = clear_arrived(header); break;
      case FrameType::kCredit: status = credit_arrived(header); break;
      case FrameType::kGoodbye: goodbye_arrived(); break;
      case FrameType::kCancel: status = cancel_arrived(header); break;
      case FrameType::kNotice:
      case FrameType::kDead:
      case FrameType::kPing: status = violation(header, "it belongs on a control connection"); break;
    }
    if (!status.is_ok()) {
      incoming = Incoming{};
      return status;
    }
  }
  const PayloadDestination destination{incoming.where,
                                       incoming.recv != nullptr && incoming.recv->op.consumer == nullptr};
  if (header.segment_nbytes == 0) PC_TRY(payload_arrived({}));
  return destination;
}

Status LinkState::request_arrived(const FrameHeader& header, std::span<const std::byte> description) {
  const auto is_it = [&](const MessageId& id) { return same_place(id, header.id); };
  Announcement* const ours = withdrawn_recvs.find([&](const Announcement& w) { return is_it(w.id); });
  if ((header.flags & kFlagWithdrawn) != 0) {  // there will be no message, and the peer holds no CLEAR for it
    Recv* const recv = recvs.find([&](const Recv& r) { return is_it(r.op.id); });
    if (recv != nullptr) forget_early(*recv);
    if (ours != nullptr) settle_recv(ours);
    return Status::ok();
  }
  if (Recv* recv = recvs.find([&](const Recv& r) { return is_it(r.op.id); }); recv != nullptr) {
    if (recv->announced || recv->started) return violation(header, "it was announced before");
    if (!recv->cleared) push_control(FrameType::kClear, recv->op.id, recv->op.nbytes);
    if (foreign(recv->op.id, recv->op.nbytes, header.id, header.message_nbytes)) {
      finish(recv, mismatch(recv->op.id, recv->op.nbytes, header.id, header.message_nbytes), header.id,
             header.message_nbytes);
      return Status::ok();
    }
    recv->announced = recv->cleared = true;
    recv->description = text_of(description);
    return Status::ok();
  }
  if (ours != nullptr) {  // our CLEAR, which it has or will have, is the answer
    if (header.id.stream.klass == StreamClass::kCollective) settle_recv(ours);
    return Status::ok();
  }
  if (fenced(header.id)) return answer(header, FrameType::kClear, 0);
  if (requests.find([&](const Announcement& r) { return is_it(r.id); }) != nullptr) {
    return violation(header, "it was announced before");
  }
  if (requests.size() >= limits.max_requests) {
    return violation(header, "more than " + std::to_string(limits.max_requests) + " unanswered requests");
  }
  keep_request(header.id, header.message_nbytes, text_of(description));
  return Status::ok();
}

void LinkState::keep_request(const MessageId& id, uint64_t nbytes, std::string description) {
  Announcement* const request = remember(requests, id, nbytes);
  request->description = std::move(description);
  if (!probes.empty()) tell_probes(id, nbytes, request->description);
  if (requests.size() < limits.max_requests) return;
  recvs.find([this](Recv& r) {
    clear_early(r);
    return false;
  });
}

Status LinkState::clear_arrived(const FrameHeader& header) {
  const auto is_it = [&](const Announcement& c) { return same_place(c.id, header.id); };
  if ((header.flags & kFlagWithdrawn) != 0) {
    if (Announcement* clear = clears.find(is_it); clear != nullptr) forget(clears, clear);
    return Status::ok();
  }
  if (Send* send = waiting.find([&](const Send& s) { return same_place(s.op.id, header.id); });
      send != nullptr) {
    const SendOp op = send->op;
    const bool is_foreign = foreign(op.id, send->nbytes(), header.id, header.message_nbytes);
    if (send->announced) {
      --unanswered;
    } else {
      --held_back;
      if (is_foreign)
        push_control(FrameType::kRequest, op.id, send->nbytes());  // so that the peer sees it too
    }
    if (is_foreign) {
      finish(send, waiting, mismatch(op.id, send->nbytes(), header.id, header.message_nbytes), header.id,
             header.message_nbytes);
    } else {
      send->cleared = true;
      waiting.remove(send);
      active.push_back(send);
    }
    announce_waiting();
    return Status::ok();
  }
  if (Announcement* ours = withdrawn_sends.find(is_it); ours != nullptr) {
    if (header.id.stream.klass == StreamClass::kCollective) settle_send(ours);
    return Status::ok();
  }
  if (fenced(header.id)) return answer(header, FrameType::kRequest, kFlagWithdrawn);
  const auto is_sending_it = [&](const Send& s) { return !s.eager && same_place(s.op.id, header.id); };
  if (active.find(is_sending_it) != nullptr || leaving.find(is_sending_it) != nullptr ||
      clears.find(is_it) != nullptr)
    return violation(header, "it was cleared before");
  if (clears.size() >= limits.max_requests) {
    return violation(header, "more than " + std::to_string(limits.max_requests) + " early clears");
  }
  remember(clears, header.id, header.message_nbytes);
  return Status::ok();
}

Status LinkState::credit_arrived(const FrameHeader& header) {
  if (header.offset > limits.credit_bytes || credit + header.offset > limits.credit_bytes) {
    return violation(header, "it returns " + std::to_string(header.offset) + " bytes, more than were spent");
  }
  credit += header.offset;
  return Status::ok();
}

void LinkState::goodbye_arrived() {
  goodbye_received = true;
  const Status why =
      about(Code::kPeerExited, "rank " + std::to_string(peer) + " shut down while this was waiting for it");
  unanswered = 0;
  held_back = 0;
  complete_all(waiting, why);
  complete_recvs(why);
  complete_probes(why);
}

Status LinkState::data_arrived(const FrameHeader& header, std::span<const std::byte> description) {
  return (header.flags & kFlagEager) != 0 ? eager_arrived(header, description) : segment_arrived(header);
}

Status LinkState::eager_arrived(const FrameHeader& header, std::span<const std::byte> description) {
  const uint64_t nbytes = header.message_nbytes;
  if (header.offset != 0 || header.segment_nbytes != nbytes || nbytes > limits.eager_bytes) {
    return violation(header, "eager message of " + std::to_string(nbytes) + " bytes, at most " +
                                 std::to_string(limits.eager_bytes) + " in one segment are allowed");
  }
  if (charged + cost(header) > limits.credit_bytes) {
    return violation(header, "it exceeds the credit of " + std::to_string(limits.credit_bytes) + " bytes");
  }
  Recv* recv = recvs.find([&](const Recv& r) { return same_place(r.op.id, header.id); });
  if (recv != nullptr && (recv->announced || recv->started))
    return violation(header, "it was announced or sent before");
  charged += cost(header);
  if (recv == nullptr && unwanted(header)) {
    incoming.kind = Incoming::Kind::kEagerSwallow;
    incoming.where = staging(nbytes);
    return Status::ok();
  }
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
  report_strays(recv->op);
  if (recv->cleared) withdraw_clear(*recv);
  if (foreign(recv->op.id, recv->op.nbytes, header.id, nbytes)) {
    finish(recv, mismatch(recv->op.id, recv->op.nbytes, header.id, nbytes), header.id, nbytes);
    incoming.kind = Incoming::Kind::kEagerSwallow;
    incoming.where = staging(nbytes);
    return Status::ok();
  }
  recv->started = true;
  incoming.kind = Incoming::Kind::kEagerReceive;
  incoming.recv = recv;
  incoming.where = recv->op.consumer != nullptr ? staging(nbytes) : recv->op.payload.first(nbytes);
  return Status::ok();
}

Status LinkState::segment_arrived(const FrameHeader& header) {
  Recv* recv = recvs.find([&](const Recv& r) { return same_place(r.op.id, header.id); });
  if (recv == nullptr && unwanted(header)) {
    incoming.kind = Incoming::Kind::kSwallow;
    incoming.where = staging(header.segment_nbytes);
    return Status::ok();
  }
  if (recv == nullptr || !recv->cleared) return violation(header, "it was not cleared");
  if (foreign(recv->op.id, recv->op.nbytes, header.id, header.message_nbytes)) {
    return violation(header, "it is not the message that was cleared");
  }
  const uint64_t expected = recv->op.offset + recv->received;
  if (header.offset != expected || header.segment_nbytes > recv->part_nbytes() - recv->received) {
    return violation(header, "segment of " + std::to_string(header.segment_nbytes) + " bytes at " +
                                 std::to_string(header.offset) + " where " + std::to_string(expected) +
                                 " was expected");
  }
  if (!recv->started) report_strays(recv->op);
  recv->started = true;
  incoming.kind = Incoming::Kind::kReceive;
  incoming.recv = recv;
  incoming.where = recv->op.consumer != nullptr
                       ? staging(header.segment_nbytes)
                       : recv->op.payload.subspan(recv->received, header.segment_nbytes);
  return Status::ok();
}

std::span<std::byte> LinkState::staging(std::size_t nbytes) {
  if (nbytes == 0) return {};
  if (!staging_memory) staging_memory = std::make_unique_for_overwrite<std::byte[]>(limits.segment_bytes);
  return {staging_memory.get(), nbytes};
}

Status LinkState::payload_arrived(std::span<const std::byte> at) {
  using Kind = Incoming::Kind;
  if (at.size() != incoming.where.size())
    return about(Code::kInternal, "a payload of another length than its header said");
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
  } else if (kind == Kind::kEagerSwallow) {
    consumed(cost(incoming.header));
  }
  return Status::ok();
}

// Its receive may have been posted between header and payload, or its collective given up.
void LinkState::store_unexpected(Unexpected* message) {
  if (fenced(message->id)) {
    consumed(message->cost());
    return release(message);
  }
  Recv* recv = recvs.find([&](const Recv& r) { return same_place(r.op.id, message->id); });
  if (recv == nullptr) {
    unexpected.push_back(message);
    unexpected_nbytes += message->nbytes;
    if (!probes.empty()) tell_probes(message->id, message->nbytes, message->description);
    return;
  }
  if (recv->cleared) withdraw_clear(*recv);
  const RecvOp op = recv->op;
  forget_early(*recv);
  recvs.remove(recv);
  recv_pool.give_back(recv);
  deliver(op, message);
}

}  // namespace pc
