#include "wire/link.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <utility>

#include "wire/link_state.h"

namespace pc {
namespace {

LinkLimits sane(LinkLimits limits) {
  limits.segment_bytes = std::clamp<std::size_t>(limits.segment_bytes / 64 * 64, 64, kMaxSegmentBytes);
  limits.eager_bytes = std::min(limits.eager_bytes, limits.segment_bytes);  // an eager message is one segment
  limits.max_requests = std::max<uint32_t>(limits.max_requests, 1);
  return limits;
}

std::string extent(const MessageId& id, uint64_t nbytes) {
  char text[80];
  std::snprintf(text, sizeof text, "%" PRIu64 " bytes (call fingerprint %016" PRIx64 ")", nbytes, id.digest);
  return text;
}

}  // namespace

std::string describe(const MessageId& id) {
  char text[160];
  if (id.stream.klass == StreamClass::kPointToPoint) {
    std::snprintf(text, sizeof text, "message %" PRIu64 " of tag %u in group %u", id.sequence, id.stream.tag,
                  id.stream.group);
  } else {
    std::snprintf(text, sizeof text, "%s %" PRIu64 " of group %u (lane %u, message %u)",
                  id.stream.klass == StreamClass::kCollective ? "collective" : "control message", id.sequence,
                  id.stream.group, id.stream.tag, id.index);
  }
  return text;
}

LinkState::LinkState(Rank me_, Rank peer_, uint32_t epoch_, const LinkLimits& limits_, Mover* mover_)
    : me(me_),
      peer(peer_),
      epoch(epoch_),
      limits(sane(limits_)),
      mover(mover_),
      credit(limits_.credit_bytes) {}

Status LinkState::about(Code code, std::string message) const {
  return Status(code, std::move(message)).with_rank(me).with_peer(peer);
}

Status LinkState::mismatch(const MessageId& ours, uint64_t our_nbytes, const MessageId& theirs,
                           uint64_t their_nbytes) const {
  return about(Code::kMismatch, "rank " + std::to_string(me) + " and rank " + std::to_string(peer) +
                                    " disagree about " + describe(ours) + ": here " +
                                    extent(ours, our_nbytes) + ", there " + extent(theirs, their_nbytes));
}

Status LinkState::why_ended(const MessageId& id) const {
  if (!failed.is_ok()) return failed;
  if (goodbye_wanted) return about(Code::kAborted, "this rank has shut down");
  if (goodbye_received) {
    return about(Code::kPeerExited,
                 "rank " + std::to_string(peer) + " has shut down and takes part in nothing any more");
  }
  if (fenced(id)) return about(Code::kAborted, describe(id) + " has ended here");
  return Status::ok();
}

void LinkState::push(Fifo<FrameHeader>& queue, FrameType type, uint8_t flags, const MessageId& id,
                     uint64_t nbytes, uint64_t offset) {
  if (goodbye_sent || !failed.is_ok()) return;  // nothing follows a goodbye
  FrameHeader header;
  header.type = type;
  header.flags = flags;
  header.epoch = epoch;
  header.id = id;
  header.message_nbytes = nbytes;
  header.offset = offset;
  queue.push(header);
}

void LinkState::finish(Send* send, NodeList<Send>& from, Status status, const MessageId& found,
                       uint64_t nbytes) {
  const SendOp op = send->op;
  from.remove(send);
  send_pool.give_back(send);
  complete(op.completions, op.token, std::move(status), found, nbytes);
}

void LinkState::finish(Recv* recv, Status status, const MessageId& found, uint64_t nbytes) {
  const RecvOp op = recv->op;
  forget_early(*recv);
  recvs.remove(recv);
  recv_pool.give_back(recv);
  complete(op.completions, op.token, std::move(status), found, nbytes);
}

// ---- Sending.

void LinkState::post_send(const SendOp& op) {
  const uint64_t nbytes = op.message_nbytes != 0 ? op.message_nbytes : op.payload.size();
  if (Status ended = why_ended(op.id); !ended.is_ok())
    return complete(op.completions, op.token, std::move(ended), op.id, 0);
  Announcement* clear = clears.find([&](const Announcement& c) { return same_place(c.id, op.id); });
  if (clear != nullptr) {
    const MessageId theirs = clear->id;
    const uint64_t their_nbytes = clear->nbytes;
    const Code gave_up = clear->given_up;
    forget(clears, clear);
    if (gave_up != Code::kOk) {
      answer_cancel(op.id, kFlagByReceiver);
      return complete(op.completions, op.token, given_up(op.id, gave_up, true), op.id, 0);
    }
    if (foreign(op.id, nbytes, theirs, their_nbytes)) {
      push_control(FrameType::kRequest, op.id, nbytes);  // so that the peer sees it too
      return complete(op.completions, op.token, mismatch(op.id, nbytes, theirs, their_nbytes), theirs,
                      their_nbytes);
    }
  }
  Send* send = send_pool.take();
  send->op = op;
  if (clear != nullptr) {
    send->cleared = true;
    active.push_back(send);
  } else if (nbytes <= limits.eager_bytes && send->cost() <= credit &&
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

void LinkState::announce_waiting() {
  while (held_back > 0 && unanswered < limits.max_requests) {
    Send* send = waiting.find([](const Send& s) { return !s.announced; });
    send->announced = true;
    --held_back;
    ++unanswered;
    push_control(FrameType::kRequest, send->op.id, send->nbytes());
  }
}

std::optional<OutFrame> LinkState::next_frame(std::size_t room) {
  if (!failed.is_ok()) return std::nullopt;
  std::optional<OutFrame> out(std::in_place);
  FrameHeader& header = out->header;
  Send* send = nullptr;
  if (!control.empty()) {
    out->description = description_of_request(control.front());
    if (out->description.size() > room) return std::nullopt;
    header = control.pop();
  } else if (!answers.empty()) {
    header = answers.pop();
  } else if (!active.empty()) {
    send = active.front();
    if (send->eager) out->description = send->op.description;
    const std::size_t count = next_segment(*send, room);
    if (count == 0 && send->part_nbytes() > 0) return std::nullopt;
    if (count + out->description.size() > room) return std::nullopt;
    out->payload = give_segment(*send, count, header);
  } else if (goodbye_is_next()) {
    header.type = FrameType::kGoodbye;
    header.epoch = epoch;
    header.id.stream.klass = StreamClass::kControl;
    goodbye_sent = true;
  } else {
    return std::nullopt;
  }
  frames_out.push(send);
  header.description_nbytes = static_cast<uint32_t>(out->description.size());
  return out;
}

// A REQUEST that only answers a CLEAR needs none.
std::span<const std::byte> LinkState::description_of_request(const FrameHeader& header) const {
  if (header.type != FrameType::kRequest || header.id.stream.klass != StreamClass::kPointToPoint) return {};
  const Send* const send = waiting.find([&](const Send& s) { return same_place(s.op.id, header.id); });
  return send == nullptr ? std::span<const std::byte>{} : send->op.description;
}

// How many bytes of it go next. Small cuts would stay small: what they free is as small.
std::size_t LinkState::next_segment(const Send& send, std::size_t room) const {
  const std::size_t rest = send.part_nbytes() - send.given;
  const std::size_t most = std::min(rest, limits.segment_bytes);
  if (send.eager) return most;
  if (room < std::min(most, OutFrame::kLeastCut)) return 0;
  const Gather payload = send.op.payload.subgather(send.given, std::min(most, room));
  const std::size_t count = payload.within(OutFrame::kMaxPieces, payload.size());
  return count < rest ? count / 64 * 64 : count;
}

Gather LinkState::give_segment(Send& send, std::size_t count, FrameHeader& header) {
  const Gather payload = send.op.payload.subgather(send.given, count);
  header.flags = send.eager ? kFlagEager : uint8_t{0};
  header.epoch = epoch;
  header.id = send.op.id;
  header.message_nbytes = send.nbytes();
  header.offset = send.op.offset + send.given;
  header.segment_nbytes = static_cast<uint32_t>(count);
  send.given += count;
  ++send.out;
  active.remove(&send);
  (send.given < send.part_nbytes() ? active : leaving).push_back(&send);  // the others have their turn
  return payload;
}

void LinkState::written() {
  if (frames_out.empty()) return;
  Send* const send = frames_out.pop();
  if (send == nullptr || --send->out > 0 || send->given < send->part_nbytes()) return;
  finish(send, leaving, Status::ok(), send->op.id, send->nbytes());
}

// ---- Receiving: what is posted. link_incoming.cc has what arrives, link_end.cc how it ends.

void LinkState::post_recv(const RecvOp& op) {
  const uint64_t wanted = op.part_nbytes != 0 ? op.part_nbytes : op.nbytes;
  if (op.consumer == nullptr && op.payload.size() < wanted) {
    Status status =
        about(Code::kInvalidArgument, "receive of " + std::to_string(wanted) + " bytes into memory of " +
                                          std::to_string(op.payload.size()));
    return complete(op.completions, op.token, std::move(status), op.id, 0);
  }
  const auto is_it = [&](const auto& item) { return same_place(item.id, op.id); };
  report_strays(op);
  if (Unexpected* message = unexpected.find(is_it); message != nullptr) {
    unexpected.remove(message);
    unexpected_nbytes -= message->nbytes;
    return deliver(op, message);
  }
  if (Status ended = why_ended(op.id); !ended.is_ok())
    return complete(op.completions, op.token, std::move(ended), op.id, 0);
  Announcement* request = requests.find(is_it);
  const bool announced = request != nullptr;
  std::string description;
  if (announced) {
    description = std::move(request->description);
    const MessageId theirs = request->id;
    const uint64_t their_nbytes = request->nbytes;
    const Code gave_up = request->given_up;
    forget(requests, request);
    if (gave_up != Code::kOk) {
      answer_cancel(op.id, 0);
      return complete(op.completions, op.token, given_up(op.id, gave_up, false), op.id, 0);
    }
    push_control(FrameType::kClear, op.id,
                 op.nbytes);  // if it is foreign, the sender sees that by this CLEAR
    if (foreign(op.id, op.nbytes, theirs, their_nbytes)) {
      return complete(op.completions, op.token, mismatch(op.id, op.nbytes, theirs, their_nbytes), theirs,
                      their_nbytes);
    }
  }
  Recv* recv = recv_pool.take();
  recv->op = op;
  recv->announced = recv->cleared = announced;
  recv->description = std::move(description);
  recvs.push_back(recv);
  if (op.nbytes > limits.eager_bytes || requests.size() >= limits.max_requests) clear_early(*recv);
}

// A collective receives all that is sent for it before the next one of its group posts anything. What is still here of an
// earlier one was sent for another call than was made here, with another root for example. That call is over; this one
// goes on, but somebody must be told. Looked for when a receive is posted, and when its message comes: frames are in order,
// so whatever the peer has sent before is here then.
void LinkState::report_strays(const RecvOp& op) {
  if (unexpected.empty() || op.id.stream.klass != StreamClass::kCollective) return;
  const auto is_stray = [&](const Unexpected& message) {
    const MessageId& theirs = message.id;
    return theirs.stream.klass == op.id.stream.klass && theirs.stream.group == op.id.stream.group &&
           theirs.sequence < op.id.sequence;
  };
  constexpr int kMostTold = 16;  // a loop of wrong calls need not be told one by one
  int told = 0;
  while (const Unexpected* const stray = unexpected.find(is_stray)) {  // the oldest
    const MessageId id = stray->id;
    discard(id.stream.group, ++told < kMostTold ? id.sequence : op.id.sequence - 1);
    Status why =
        about(Code::kMismatch, "rank " + std::to_string(peer) + " sent " + describe(id) +
                                   ", which the same call here did not receive: the two had different "
                                   "roots or otherwise made different calls then");
    complete(op.completions, kStrayToken, std::move(why), id, 0);
  }
}

// A sender that holds max_requests unanswered REQUESTs may be unable to announce this message: hence the early CLEAR of
// small ones too when that is so.
void LinkState::clear_early(Recv& recv) {
  if (recv.cleared || recv.started || early_clears >= limits.max_requests) return;
  recv.cleared = recv.early = true;
  ++early_clears;
  push_control(FrameType::kClear, recv.op.id, recv.op.nbytes);
}

// An eager message has crossed the early CLEAR.
void LinkState::withdraw_clear(const Recv& recv) {
  push_control(FrameType::kClear, recv.op.id, recv.op.nbytes, kFlagWithdrawn);
}

void LinkState::forget_early(Recv& recv) {
  if (recv.early) --early_clears;
  recv.early = false;
}

void LinkState::deliver(const RecvOp& op, Unexpected* message) {
  const MessageId theirs = message->id;
  const uint64_t nbytes = message->nbytes;
  Status status;
  if (foreign(op.id, op.nbytes, theirs, nbytes)) {
    status = mismatch(op.id, op.nbytes, theirs, nbytes);
  } else if (nbytes > 0) {
    if (op.consumer != nullptr) {
      op.consumer->consume(0, message->bytes());
    } else {
      std::memcpy(op.payload.data(), message->bytes().data(), nbytes);
    }
  }
  consumed(message->cost());
  release(message);
  complete(op.completions, op.token, std::move(status), theirs, nbytes);
}

// ---- Looking for what can be received.

void LinkState::post_probe(const ProbeOp& op) {
  const auto is_it = [&](const auto& item) { return same_place(item.id, op.id); };
  const auto found = [&op](const auto& item) {
    if (op.description != nullptr) *op.description = item.description;
    complete(op.completions, op.token, Status::ok(), item.id, item.nbytes);
  };
  if (const Unexpected* message = unexpected.find(is_it); message != nullptr) return found(*message);
  if (Status ended = why_ended(op.id); !ended.is_ok())
    return complete(op.completions, op.token, std::move(ended), op.id, 0);
  if (const Announcement* request = requests.find(is_it); request != nullptr) return found(*request);
  Probe* const probe = probe_pool.take();
  probe->op = op;
  probes.push_back(probe);
}

void LinkState::tell_probes(const MessageId& id, uint64_t nbytes, const std::string& description) {
  while (Probe* const probe = probes.find([&](const Probe& p) { return same_place(p.op.id, id); })) {
    const ProbeOp op = probe->op;
    probes.remove(probe);
    probe_pool.give_back(probe);
    if (op.description != nullptr) *op.description = description;
    complete(op.completions, op.token, Status::ok(), id, nbytes);
  }
}

void LinkState::release(Unexpected* message) {
  message->large.reset();
  message->description = std::string();
  unexpected_pool.give_back(message);
}

void LinkState::consumed(uint64_t cost) {
  returnable += cost;
  if (returnable >= limits.credit_bytes / 2) push_credit();
}

void LinkState::push_credit() {
  if (goodbye_sent || !failed.is_ok()) return;
  FrameHeader header;
  header.type = FrameType::kCredit;
  header.epoch = epoch;
  header.id.stream.klass = StreamClass::kControl;
  header.offset = returnable;
  control.push(header);
  charged -= returnable;
  returnable = 0;
}

// ---- The short way.

bool LinkState::send_at_once(const MessageId& id, uint64_t nbytes, uint64_t cost) {
  const bool idle =
      control.empty() && answers.empty() && active.empty() && frames_out.empty() && clears.empty();
  const bool lives = failed.is_ok() && !goodbye_wanted && !goodbye_received;
  if (!idle || !lives || nbytes > limits.eager_bytes || cost > credit ||
      id.stream.klass != StreamClass::kPointToPoint)
    return false;
  credit -= cost;
  return true;
}

bool LinkState::can_receive_at_once(const FrameHeader& header, const MessageId& id, uint64_t nbytes) const {
  const bool idle = recvs.empty() && unexpected.empty() && requests.empty() && probes.empty() &&
                    withdrawn_recvs.empty() && incoming.kind == Incoming::Kind::kNothing;
  const bool lives = failed.is_ok() && !goodbye_received;
  const bool is_it = header.type == FrameType::kData && (header.flags & kFlagEager) != 0 &&
                     header.epoch == epoch && header.message_nbytes == nbytes && same_place(header.id, id) &&
                     header.id.digest == id.digest && id.stream.klass == StreamClass::kPointToPoint;
  return idle && lives && is_it && nbytes <= limits.eager_bytes &&
         charged + cost(header) <= limits.credit_bytes;
}

// ---- The public face.

Link::Link(Rank me, Rank peer, uint32_t epoch, const LinkLimits& limits, Mover* mover)
    : state_(std::make_unique<LinkState>(me, peer, epoch, limits, mover)) {}
Link::~Link() = default;
void Link::post_send(const SendOp& op) { state_->post_send(op); }
void Link::post_recv(const RecvOp& op) { state_->post_recv(op); }
void Link::post_probe(const ProbeOp& op) { state_->post_probe(op); }
bool Link::cancel(const CompletionSink* sink, const Status& why) { return state_->cancel(sink, why); }
void Link::discard(uint32_t group, uint64_t sequence) { state_->discard(group, sequence); }
void Link::close_group(uint32_t group) { state_->close_group(group); }
std::optional<OutFrame> Link::next_frame(std::size_t room) { return state_->next_frame(room); }
bool Link::send_at_once(const MessageId& id, uint64_t nbytes, uint64_t description_nbytes) {
  return state_->send_at_once(id, nbytes, kHeaderBytes + description_nbytes + nbytes);
}
bool Link::can_receive_at_once(const FrameHeader& header, const MessageId& id, uint64_t nbytes) const {
  return state_->can_receive_at_once(header, id, nbytes);
}
void Link::received_at_once(const FrameHeader& header) {
  state_->charged += LinkState::cost(header);
  state_->consumed(LinkState::cost(header));
}
void Link::written() { state_->written(); }
bool Link::has_posted() const {
  const LinkState& s = *state_;
  return !s.recvs.empty() || !s.probes.empty() || !s.active.empty() || !s.leaving.empty() ||
         !s.waiting.empty();
}
bool Link::has_output() const {
  const LinkState& s = *state_;
  return s.failed.is_ok() && (!s.frames_out.empty() || !s.control.empty() || !s.answers.empty() ||
                              !s.active.empty() || s.goodbye_is_next());
}
Result<PayloadDestination> Link::header_arrived(const FrameHeader& header,
                                                std::span<const std::byte> description) {
  return state_->header_arrived(header, description);
}
Status Link::payload_arrived() { return state_->payload_arrived(state_->incoming.where); }
Status Link::payload_arrived_at(std::span<const std::byte> where_it_is) {
  return state_->payload_arrived(where_it_is);
}
bool Link::peer_said_goodbye() const { return state_->goodbye_received; }
bool Link::says_goodbye() const { return state_->goodbye_wanted; }
void Link::say_goodbye() { state_->goodbye_wanted = true; }
void Link::fail(const Status& why) { state_->fail(why); }
Link::Counts Link::counts() const {
  const LinkState& s = *state_;
  return {.posted_sends = s.active.size() + s.leaving.size() + s.waiting.size(),
          .posted_recvs = s.recvs.size(),
          .unexpected = s.unexpected.size(),
          .requests = s.requests.size(),
          .unexpected_nbytes = s.unexpected_nbytes,
          .clears = s.clears.size(),
          .withdrawn = s.withdrawn_sends.size() + s.withdrawn_recvs.size(),
          .unanswered = s.unanswered,
          .early_clears = s.early_clears,
          .credit = s.credit,
          .charged = s.charged,
          .returnable = s.returnable};
}

}  // namespace pc
