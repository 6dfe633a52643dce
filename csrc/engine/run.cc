#include "engine/run.h"

namespace pc {

void Run::renew(const Request& request, const Launch& launch) {
  Completion late;  // a request to end the previous call, if the request arrived just after that call's end
  while (queue_.take(late)) {
  }
  request_ = request;
  launch_ = launch;
  started_ = false;
  result_ = Status();
  stop_notifying();
  notifier_.store(nullptr, std::memory_order_relaxed);
  ended_.store(false, std::memory_order_relaxed);
}

void Run::set_notifier(CompletionSink* notifier, uint64_t token) {
  notifier_token_.store(token);
  notifier_.store(notifier);
  if (notifier == nullptr) {
    queue_.notify(nullptr, 0);
    return progress_held();
  }
  if (ended_.load()) notify_now();  // set_ended() may have seen no notifier
}

void Run::notify_completions() {
  CompletionSink* const notifier = notifier_.load();
  if (notifier == nullptr) return;
  queue_.notify(notifier, notifier_token_.load());
  progress_released();
}

void Run::stop_notifying() {
  if (notifier_.load(std::memory_order_relaxed) == nullptr) return;
  queue_.notify(nullptr, 0);
  progress_held();
}

void Run::notify_now() const {
  if (CompletionSink* const notifier = notifier_.load(); notifier != nullptr)
    notifier->complete(Completion{notifier_token_.load(), Status(), {}, 0});
}

void Run::set_ended(Status result) {
  Completion late;
  while (queue_.take(late)) {
  }
  result_ = std::move(result);
  // Sequentially consistent, as are the accesses in set_notifier(): either this thread sees the new
  // notifier, or set_notifier() sees that the run has ended.
  ended_.store(true);
  notify_now();
}

}  // namespace pc
