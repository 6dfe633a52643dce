#include "operation/wait_watch.h"

namespace pc {

void LongWait::look(TimePoint now) {
  if (now < look_at_) return;
  look_at_ = now + kNext;
  look_after(work_.waits_for());
  const std::chrono::duration<double> waited = now - began_;
  if (warned_ || waited.count() < calls_.parts().warn_after_s) return;
  warned_ = true;
  warn();
}

void CallWatch::look_after(Rank peer) {
  if (peer >= 0) calls_.parts().control->stalled(id_, calls_.names().to_world(peer));
}

void CallWatch::warn() { calls_.parts().control->survey(id_); }

void MessageWatch::look_after(Rank) {
  std::size_t count = 0, others = 0;
  for (const Rank peer : peers_) {
    if (peer == calls_.names().rank()) continue;
    ++others;
    count += calls_.peer_has_left(peer) ? 1 : 0;
  }
  if (left_ || others == 0 || count < others) return;
  left_ = true;
  work_.cancel();
}

void MessageWatch::warn() {
  calls_.parts().log.warning([&] {
    if (peers_.size() > 1) return std::string(verb_) + " any rank waits for long: no rank has sent";
    return std::string(verb_) + " " + calls_.names().full(peers_.front()) + " waits for long: it has not " +
           (verb_.starts_with("send") ? "posted its recv" : "sent");
  });
}

}  // namespace pc
