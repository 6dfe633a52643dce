// How messages are given up: by us, by the peer, or by both at once. The connection lives on: an operation whose peer may
// still write about it is remembered by name until its answer shows that nothing more comes.
#include <algorithm>
#include <utility>

#include "wire/link_state.h"

namespace pc {
namespace {

bool is_point_to_point(const MessageId& id) { return id.stream.klass == StreamClass::kPointToPoint; }

auto names(const MessageId& id) {
  return [&id](const auto& item) { return same_place(item.id, id); };
}
auto posted_as(const MessageId& id) {
  return [&id](const auto& item) { return same_place(item.op.id, id); };
}

}  // namespace

// ---- By us.

bool LinkState::cancel(const CompletionSink* sink, const Status& why) {
  bool untold = true;
  const auto withdraw_from = [&](auto& list, auto& pool) {
    for (auto *item = list.front(), *next = item; item != nullptr; item = next) {
      next = item->next;
      if (item->op.completions != sink) continue;
      if (!take_back(*item, why)) {
        const MessageId& id = item->op.id;
        untold = false;
        if (!is_point_to_point(id)) raise_fence(id.stream.group, id.sequence);
      }
      list.remove(item);
      pool.give_back(item);
    }
  };
  for (NodeList<Send>* list : {&active, &leaving, &waiting}) withdraw_from(*list, send_pool);
  withdraw_from(recvs, recv_pool);
  for (Probe *probe = probes.front(), *next = probe; probe != nullptr; probe = next) {
    next = probe->next;
    if (probe->op.completions != sink) continue;
    probes.remove(probe);
    probe_pool.give_back(probe);
  }
  announce_waiting();
  return untold;
}

bool LinkState::take_back(Send& send, const Status& why) {
  const MessageId& id = send.op.id;
  if (send.eager && send.out == 0) {
    credit += send.cost();
    return true;
  }
  const bool asked = send.announced && !drop_queued(FrameType::kRequest, id);
  if (!asked && send.given == 0 && send.out == 0) {
    if (send.cleared) {
      remember(clears, id, send.nbytes());  // as before it was posted
    } else if (send.announced) {
      --unanswered;
    } else {
      --held_back;
    }
    return true;
  }
  detach(send);
  if (send.out > 0 && send.given == send.part_nbytes()) return false;  // all of it is on its way
  if (is_point_to_point(id)) {
    push(control, FrameType::kCancel, 0, id, 0, static_cast<uint64_t>(why.code()));
  } else if (send.cleared) {
    return false;  // REQUEST and CLEAR have met: nothing more comes
  }
  remember(withdrawn_sends, id, send.nbytes())->counted = !send.cleared;
  return false;
}

bool LinkState::take_back(Recv& recv, const Status& why) {
  const MessageId& id = recv.op.id;
  const bool eager_is_arriving = incoming.recv == &recv && incoming.kind == Incoming::Kind::kEagerReceive;
  if (incoming.recv == &recv) swallow_incoming();
  if (!recv.started && (!recv.cleared || drop_queued(FrameType::kClear, id))) {
    forget_early(recv);
    if (recv.announced)
      keep_request(id, recv.op.nbytes, std::move(recv.description));  // as before it was posted
    return true;
  }
  const bool used = recv.announced || recv.started;  // the peer has our CLEAR, or will not keep it
  if (!eager_is_arriving && (is_point_to_point(id) || (recv.early && !used))) {
    remember(withdrawn_recvs, id, recv.op.nbytes)->counted = std::exchange(recv.early, false);
    if (is_point_to_point(id)) {
      push(control, FrameType::kCancel, kFlagByReceiver, id, 0, static_cast<uint64_t>(why.code()));
    }
  }
  forget_early(recv);
  return false;
}

bool LinkState::drop_queued(FrameType type, const MessageId& id) {
  return control.remove([&](const FrameHeader& h) { return h.type == type && same_place(h.id, id); });
}

void LinkState::detach(Send& send) {
  if (send.out == 0) return;
  if (mover != nullptr) mover->keep_unsent();
  frames_out.replace(&send, nullptr);
}

void LinkState::swallow_incoming() {
  using Kind = Incoming::Kind;
  const bool is_in_staging = incoming.recv->op.consumer != nullptr;
  incoming.recv = nullptr;
  incoming.kind = incoming.kind == Kind::kEagerReceive ? Kind::kEagerSwallow : Kind::kSwallow;
  if (is_in_staging) return;
  incoming.where = staging(incoming.where.size());
  if (mover != nullptr) mover->redirect(incoming.where);
}

void LinkState::discard(uint32_t group, uint64_t sequence) {
  raise_fence(group, sequence);
  drop_fenced();
}

void LinkState::close_group(uint32_t group) {
  std::erase_if(fences, [&](const Fence& fence) { return fence.group == group; });
  closed_groups.add(group);
  drop_fenced();
}

void LinkState::raise_fence(uint32_t group, uint64_t sequence) {
  for (Fence& fence : fences) {
    if (fence.group != group) continue;
    fence.through = std::max(fence.through, sequence);
    return;
  }
  fences.push_back({group, sequence});
}

bool LinkState::fenced(const MessageId& id) const {
  if (closed_groups.contains(id.stream.group)) return true;
  if (fences.empty() || id.stream.klass != StreamClass::kCollective) return false;
  return std::any_of(fences.begin(), fences.end(), [&](const Fence& fence) {
    return fence.group == id.stream.group && id.sequence <= fence.through;
  });
}

// Every REQUEST is answered by one CLEAR, every early CLEAR by REQUEST or DATA, also here: the peer counts them. What the peer
// has given up meanwhile, which only messages can be, is answered by a CANCEL.
void LinkState::drop_fenced() {
  const auto is_fenced = [this](const auto& item) { return fenced(item.id); };
  while (Unexpected* message = unexpected.find(is_fenced)) {
    unexpected.remove(message);
    unexpected_nbytes -= message->nbytes;
    consumed(message->cost());
    release(message);
  }
  while (Announcement* request = requests.find(is_fenced)) {
    if (request->given_up != Code::kOk)
      answer_cancel(request->id, 0);
    else
      push(answers, FrameType::kClear, 0, request->id, request->nbytes, 0);
    forget(requests, request);
  }
  while (Announcement* clear = clears.find(is_fenced)) {
    if (clear->given_up != Code::kOk)
      answer_cancel(clear->id, kFlagByReceiver);
    else
      push(answers, FrameType::kRequest, kFlagWithdrawn, clear->id, clear->nbytes, 0);
    forget(clears, clear);
  }
}

// ---- By the peer.

Status LinkState::cancel_arrived(const FrameHeader& header) {
  if (!is_point_to_point(header.id)) return violation(header, "it belongs on a control connection");
  const bool by_receiver = (header.flags & kFlagByReceiver) != 0;
  if ((header.flags & kFlagAnswer) == 0)
    return by_receiver ? receiver_gave_up(header) : sender_gave_up(header);
  NodeList<Announcement>& withdrawn = by_receiver ? withdrawn_recvs : withdrawn_sends;
  if (Announcement* ours = withdrawn.find(names(header.id)); ours != nullptr) {
    by_receiver ? settle_recv(ours) : settle_send(ours);
  }
  return Status::ok();
}

namespace {

// What our half ends with.
Code code_for(const FrameHeader& cancel) {
  switch (cancel.offset) {
    case static_cast<uint64_t>(Code::kInterrupted): return Code::kPeerInterrupted;
    case static_cast<uint64_t>(Code::kTimeout): return Code::kTimeout;
    default: return Code::kAborted;
  }
}

}  // namespace

Status LinkState::sender_gave_up(const FrameHeader& header) {
  if (Announcement* ours = withdrawn_recvs.find(names(header.id)); ours != nullptr) {
    settle_recv(ours);  // both gave up at once: each CANCEL answers the other
    return Status::ok();
  }
  if (Announcement* request = requests.find(names(header.id)); request != nullptr) {
    if (request->given_up != Code::kOk) return violation(header, "it was cancelled before");
    request->given_up = code_for(header);
    return Status::ok();
  }
  if (Recv* recv = recvs.find(posted_as(header.id)); recv != nullptr) {
    answer_cancel(header.id, 0);
    finish(recv, given_up(header.id, code_for(header), false), header.id, 0);
    return Status::ok();
  }
  return answer(header, FrameType::kCancel, kFlagAnswer);  // it has ended otherwise
}

// An eager send is not affected: its message is discarded over there, and then its CLEAR here.
Status LinkState::receiver_gave_up(const FrameHeader& header) {
  if (Announcement* ours = withdrawn_sends.find(names(header.id)); ours != nullptr) {
    settle_send(ours);
    return Status::ok();
  }
  if (Announcement* clear = clears.find(names(header.id)); clear != nullptr) {
    if (clear->given_up != Code::kOk) return violation(header, "it was cancelled before");
    clear->given_up = code_for(header);
    return Status::ok();
  }
  for (NodeList<Send>* list : {&active, &leaving}) {
    Send* const send = list->find([&](const Send& s) { return !s.eager && same_place(s.op.id, header.id); });
    if (send == nullptr) continue;
    detach(*send);
    answer_cancel(header.id, kFlagByReceiver);
    finish(send, *list, given_up(header.id, code_for(header), true), header.id, 0);
    return Status::ok();
  }
  return answer(header, FrameType::kCancel, kFlagByReceiver | kFlagAnswer);
}

Status LinkState::given_up(const MessageId& id, Code code, bool by_receiver) const {
  const char* const reason = code == Code::kPeerInterrupted ? "it was interrupted"
                             : code == Code::kTimeout       ? "its deadline passed"
                                                            : "the call there was ended";
  return about(code, "rank " + std::to_string(peer) + " gave up " +
                         (by_receiver ? "receiving " : "sending ") + describe(id) + ": " + reason);
}

void LinkState::answer_cancel(const MessageId& id, uint8_t direction) {
  push(answers, FrameType::kCancel, direction | kFlagAnswer, id, 0, 0);
}

// To a frame that concerns no operation of ours: only the peer decides how many there are.
Status LinkState::answer(const FrameHeader& header, FrameType type, uint8_t flags) {
  if (answers.size() >= std::size_t{4} * limits.max_requests) {
    return violation(header, "it takes none of our " + std::to_string(answers.size()) + " answers");
  }
  push(answers, type, flags, header.id, header.message_nbytes, 0);
  return Status::ok();
}

// ---- What is remembered.

LinkState::Announcement* LinkState::remember(NodeList<Announcement>& list, const MessageId& id,
                                             uint64_t nbytes) {
  Announcement* const item = announcement_pool.take();
  item->id = id;
  item->nbytes = nbytes;
  list.push_back(item);
  return item;
}

void LinkState::forget(NodeList<Announcement>& list, Announcement* item) {
  list.remove(item);
  announcement_pool.give_back(item);
}

void LinkState::settle_send(Announcement* withdrawn) {
  if (withdrawn->counted) --unanswered;
  forget(withdrawn_sends, withdrawn);
  announce_waiting();
}

void LinkState::settle_recv(Announcement* withdrawn) {
  if (withdrawn->counted) --early_clears;
  forget(withdrawn_recvs, withdrawn);
}

bool LinkState::unwanted(const FrameHeader& header) {
  Announcement* const ours = withdrawn_recvs.find(names(header.id));
  if (ours == nullptr) return fenced(header.id);
  const bool eager = (header.flags & kFlagEager) != 0;
  if (eager && ours->counted) push_control(FrameType::kClear, ours->id, ours->nbytes, kFlagWithdrawn);
  if (eager || !is_point_to_point(header.id)) settle_recv(ours);  // the CLEAR is used, or they have crossed
  return true;
}

}  // namespace pc
