// How operations end when the whole link is gone.
#include "wire/link_state.h"

namespace pc {

void LinkState::complete_all(NodeList<Send>& list, const Status& why) {
  while (!list.empty()) finish(list.front(), list, why, list.front()->op.id, 0);
}

void LinkState::complete_recvs(const Status& why) {
  while (!recvs.empty()) finish(recvs.front(), why, recvs.front()->op.id, 0);
}

void LinkState::complete_probes(const Status& why) {
  while (Probe* const probe = probes.front()) {
    const ProbeOp op = probe->op;
    probes.remove(probe);
    probe_pool.give_back(probe);
    complete(op.completions, op.token, why, op.id);
  }
}

void LinkState::fail(const Status& why) {
  if (!failed.is_ok()) return;
  failed = why.is_ok() ? about(Code::kInternal, "the link was ended without a reason") : why;
  frames_out.clear();
  if (incoming.kind == Incoming::Kind::kUnexpected) release(incoming.unexpected);
  incoming = Incoming{};
  control.clear();
  answers.clear();
  unanswered = 0;
  held_back = 0;
  complete_all(active, failed);
  complete_all(leaving, failed);
  complete_all(waiting, failed);
  complete_recvs(failed);
  complete_probes(failed);
  for (NodeList<Announcement>* list : {&clears, &requests, &withdrawn_sends, &withdrawn_recvs}) {
    while (!list->empty()) forget(*list, list->front());
  }
  if (goodbye_received) return;  // what came whole before the goodbye may still be wanted
  while (Unexpected* message = unexpected.front()) {
    unexpected.remove(message);
    release(message);
  }
  unexpected_nbytes = 0;
}

}  // namespace pc
