#include "engine/message_probe.h"

#include <utility>

namespace pc {

void MessageProbe::look_for(Rank peer, const MessageId& id, bool counts) {
  counted_ += counts ? 1 : 0;
  Sought& sought = sought_.emplace_back(Sought{peer, {}});
  transport_.post_probe(peer, {id, &queue_, sought_.size() - 1, &sought.description});
}

Status MessageProbe::wait(const WaitContext& context) {
  for (;;) {
    Completion completion;
    while (!queue_.take(completion)) {
      const WaitEnd end = reactor_.wait(queue_, context);
      if (end == WaitEnd::kReady) continue;
      withdraw();
      return ended_early(end, where(), -1);
    }
    if (completion.token == kLookAgain) break;
    if (completion.token == kCancelled) {
      withdraw();
      return Status(Code::kAborted, "cancelled by its owner");
    }
    const std::size_t which = completion.token;
    if (completion.status.is_ok()) {
      found_ = true;
      find_ = {which, completion.found, completion.nbytes, std::move(sought_[which].description)};
      break;
    }
    const bool may_come = ++over_ < counted_ && completion.status.code() != Code::kPeerFailure;
    if (may_come) continue;
    failed_ = which;
    withdraw();
    return completion.status;
  }
  withdraw();
  return Status::ok();
}

void MessageProbe::withdraw() {
  if (std::exchange(ended_, true)) return;
  static_cast<void>(transport_.cancel(&queue_, Status(Code::kAborted, "the probe has ended")));
}

}  // namespace pc
