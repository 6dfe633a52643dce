// How operations end other than by being done: withdrawn by us, or the whole link is gone.
#include "wire/link_state.h"

namespace pc {

bool Link::State::cancel(const CompletionSink* sink) {
  bool clean = true;
  const auto drop_queued = [&](FrameType type, const MessageId& id) {
    return control.remove([&](const FrameHeader& h) { return h.type == type && same_place(h.id, id); });
  };
  for (NodeList<Send>* list : {&active, &leaving}) {
    for (Send *send = list->front(), *next = nullptr; send != nullptr; send = next) {
      next = send->next;
      if (send->op.completions != sink) continue;
      if (send->out > 0 || send->given > 0 || !send->eager) {
        clean = false;
      } else {
        credit += cost(send->nbytes());
      }
      list->remove(send);
      send_pool.give_back(send);
    }
  }
  for (Send *send = waiting.front(), *next = nullptr; send != nullptr; send = next) {
    next = send->next;
    if (send->op.completions != sink) continue;
    if (!send->announced) {
      --held_back;
    } else {
      --unanswered;
      clean = drop_queued(FrameType::kRequest, send->op.id) && clean;
    }
    waiting.remove(send);
    send_pool.give_back(send);
  }
  for (Recv *recv = recvs.front(), *next = nullptr; recv != nullptr; recv = next) {
    next = recv->next;
    if (recv->op.completions != sink) continue;
    if (recv->announced || recv->started) {
      clean = false;
    } else if (recv->cleared) {
      clean = drop_queued(FrameType::kClear, recv->op.id) && clean;
    }
    if (incoming.recv == recv) incoming = Incoming{};
    forget_early(*recv);
    recvs.remove(recv);
    recv_pool.give_back(recv);
  }
  if (clean) {
    announce_waiting();
  } else {
    frames_out.clear();  // they name sends that are gone; fail() comes next
  }
  return clean;
}

void Link::State::complete_all(NodeList<Send>& list, const Status& why) {
  while (!list.empty()) finish(list.front(), list, why, list.front()->op.id, 0);
}

void Link::State::complete_recvs(const Status& why) {
  while (!recvs.empty()) finish(recvs.front(), why, recvs.front()->op.id, 0);
}

void Link::State::fail(const Status& why) {
  if (!failed.is_ok()) return;
  failed = why.is_ok() ? about(Code::kInternal, "the link was ended without a reason") : why;
  frames_out.clear();
  if (incoming.kind == Incoming::Kind::kUnexpected) release(incoming.unexpected);
  incoming = Incoming{};
  control.clear();
  unanswered = 0;
  held_back = 0;
  complete_all(active, failed);
  complete_all(leaving, failed);
  complete_all(waiting, failed);
  complete_recvs(failed);
  const auto forget = [this](NodeList<Announcement>& list) {
    while (Announcement* item = list.front()) {
      list.remove(item);
      announcement_pool.give_back(item);
    }
  };
  forget(clears);
  forget(requests);
  if (goodbye_received) return;  // what came whole before the goodbye may still be wanted
  while (Unexpected* message = unexpected.front()) {
    unexpected.remove(message);
    release(message);
  }
  unexpected_nbytes = 0;
}

}  // namespace pc
