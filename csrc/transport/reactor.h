// Waits for completions on behalf of every thread of a process. Whoever holds the baton polls the transports for
// everybody; the others sleep on their own queue. No thread of its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "base/fd.h"
#include "base/waiter.h"
#include "transport/transport.h"

namespace pc {

// Completions of one operation's owner (a plan run, a send, a receive). Any thread may complete; one thread takes.
class CompletionQueue final : public CompletionSink {
 public:
  CompletionQueue();
  ~CompletionQueue();
  void complete(Completion&& completion) override;
  bool take(Completion& out);                   // false: empty
  bool empty() const { return size_.load(std::memory_order_acquire) == 0; }

 private:
  friend class Reactor;
  std::atomic<uint32_t> size_{0};               // also the futex word that a thread without the baton sleeps on
  std::mutex mutex_;                            // guards items_
  std::vector<Completion> items_;
};

// Thread-safety: all methods.
class Reactor {
 public:
  explicit Reactor(bool crowded);
  ~Reactor();
  Status add(Transport* transport);             // not owned; must be removed before it goes
  void remove(Transport* transport);
  // Polls until `queue` has a completion or the wait ends otherwise. Anybody's completions may arrive meanwhile.
  WaitEnd wait(CompletionQueue& queue, const WaitContext& context);
  std::size_t poll();                           // one round without blocking
  void wake();                                  // whoever sleeps in wait() looks again (abort words, new work)

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pc
