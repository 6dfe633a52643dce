#include "engine/run.h"

namespace pc {

void Run::renew(const Request& request, const Launch& launch) {
  Completion late;  // a request to end the last call that came just after its end
  while (queue_.take(late)) {
  }
  request_ = request;
  launch_ = launch;
  started_ = false;
  result_ = Status();
  ring_for_nothing();
  bell_.store(nullptr, std::memory_order_relaxed);
  ended_.store(false, std::memory_order_relaxed);
}

void Run::set_bell(CompletionSink* bell, uint64_t token) {
  bell_token_.store(token);
  bell_.store(bell);
  if (bell == nullptr) {
    queue_.ring(nullptr, 0);
    return driven();
  }
  if (ended_.load()) ring_now();  // its end may have seen no bell
}

void Run::ring_for_completions() {
  CompletionSink* const bell = bell_.load();
  if (bell == nullptr) return;
  queue_.ring(bell, bell_token_.load());
  undriven();
}

void Run::ring_for_nothing() {
  if (bell_.load(std::memory_order_relaxed) == nullptr) return;
  queue_.ring(nullptr, 0);
  driven();
}

void Run::ring_now() const {
  if (CompletionSink* const bell = bell_.load(); bell != nullptr)
    bell->complete(Completion{bell_token_.load(), Status(), {}, 0});
}

void Run::set_ended(Status result) {
  Completion late;
  while (queue_.take(late)) {
  }
  result_ = std::move(result);
  ended_.store(true);  // in one order with set_bell(): one of the two sees the other
  ring_now();
}

}  // namespace pc
