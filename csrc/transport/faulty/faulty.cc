#include "transport/faulty/faulty.h"

#include <utility>

namespace pc {

void FaultyTransport::hold(Rank peer) {
  const std::lock_guard lock(mutex_);
  held_.try_emplace(peer);
}

void FaultyTransport::release(Rank peer) {
  const std::lock_guard lock(mutex_);
  const auto found = held_.find(peer);
  if (found == held_.end()) return;
  for (const Held& held : found->second) held.post();
  held_.erase(found);
}

void FaultyTransport::die_after(std::size_t posts) {
  const std::lock_guard lock(mutex_);
  posts_left_ = posts;
}

void FaultyTransport::post_send(Rank peer, const SendOp& op) {
  post(peer, {op.completions, op.token, [this, peer, op] { inner_->post_send(peer, op); }});
}

void FaultyTransport::post_recv(Rank peer, const RecvOp& op) {
  post(peer, {op.completions, op.token, [this, peer, op] { inner_->post_recv(peer, op); }});
}

void FaultyTransport::post_probe(Rank peer, const ProbeOp& op) {
  post(peer, {op.completions, op.token, [this, peer, op] { inner_->post_probe(peer, op); }});
}

void FaultyTransport::post(Rank peer, Held held) {
  const std::lock_guard lock(mutex_);
  if (posts_left_ && (*posts_left_)-- == 0) {
    posts_left_.reset();
    const Status why(Code::kAborted, "died on order");
    inner_->abort(why);
    complete_held(why);
  }
  const auto found = held_.find(peer);
  if (found != held_.end()) {
    found->second.push_back(std::move(held));
  } else {
    held.post();
  }
}

bool FaultyTransport::cancel(const CompletionSink* sink, const Status& why) {
  const std::lock_guard lock(mutex_);
  for (auto& [peer, posts] : held_) {
    std::erase_if(posts, [&](const Held& held) { return held.completions == sink; });
  }
  return inner_->cancel(sink, why);
}

void FaultyTransport::shutdown(Deadline deadline) {
  {
    const std::lock_guard lock(mutex_);
    complete_held(Status(Code::kAborted, "the transport was shut down"));
  }
  inner_->shutdown(deadline);
}

void FaultyTransport::abort(const Status& why) noexcept {
  const std::lock_guard lock(mutex_);
  complete_held(why);
  inner_->abort(why);
}

// After this no peer is held: the real transport completes later posts with its own error.
void FaultyTransport::complete_held(const Status& why) {
  for (const auto& [peer, posts] : std::exchange(held_, {})) {
    for (const Held& held : posts) complete(held.completions, held.token, why);
  }
}

}  // namespace pc
