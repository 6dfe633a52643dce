// Waits for completions on behalf of every thread of a process. Whoever holds the poll lock polls the
// transports for everybody; the others sleep on their own queue. No thread of its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "base/waiter.h"
#include "transport/transport.h"

namespace pc {

// Completions of one operation's owner (a plan run, a send, a receive). Any thread may complete; one thread takes.
// May be destroyed once nothing that reports to it is posted any more, also while complete() is on its way out.
class CompletionQueue final : public CompletionSink {
 public:
  CompletionQueue();
  ~CompletionQueue();
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;
  void complete(Completion&& completion) override;
  bool take(Completion& out);  // false: empty
  // From now on `notifier` is completed with `token` whenever something comes while this queue is empty; at
  // once, if there is something now. For whoever looks after many queues. Null: nobody. Thread-safety: from
  // anywhere.
  void notify(CompletionSink* notifier, uint64_t token);
  bool empty() const { return word_.load(std::memory_order_acquire) < kOne; }

 private:
  friend class Reactor;
  void sleep_in_futex(int ms);  // by the taker; ends early at a completion or a nudge
  template <class Sleep>
  void sleep_in_epoll(int wake_fd, Sleep&& sleep);
  void nudge();  // ends or prevents the next sleep_in_futex

  static constexpr uint32_t kInFutex = 1, kInEpoll = 2, kNudged = 4, kOne = 8;
  std::atomic<uint32_t> word_{0};  // bits above, number of items times kOne; a futex word
  std::atomic<int> wake_fd_{-1};   // eventfd that ends the taker's sleep while kInEpoll is set
  std::mutex mutex_;               // guards what follows; held by complete() to its very end
  CompletionSink* notifier_ = nullptr;
  uint64_t notifier_token_ = 0;
  std::vector<Completion> items_;
  std::size_t first_ = 0;
};

// Thread-safety: all methods.
class Reactor {
 public:
  explicit Reactor(bool oversubscribed);
  ~Reactor();
  Reactor(const Reactor&) = delete;
  Reactor& operator=(const Reactor&) = delete;
  Status add(Pollable* source);  // not owned; must be removed before it goes
  void remove(Pollable* source);
  // Polls until `queue` has a completion or the wait ends otherwise. Anybody's completions may arrive meanwhile.
  // Called by the one thread that takes from `queue`.
  WaitEnd wait(CompletionQueue& queue, const WaitContext& context);
  // Polls once, if nobody else does. Whether `queue` has a completion. For who waits for something else as well.
  bool poll(CompletionQueue& queue);
  // Whether the thread in the background does it, which makes way for wait() alone.
  bool polls_in_background() const;
  // The same as wait() for a thread that nobody waits for: it sleeps at once, and whoever comes to wait() polls in its place. One
  // thread at a time.
  WaitEnd wait_in_background(CompletionQueue& queue, const WaitContext& context);
  void close_in_child() noexcept;  // in a forked child: closes the descriptors; nothing may follow
  void wake();                     // whoever sleeps in wait() looks again (abort words, new work)

 private:
  struct State;
  class WaitScope;
  class InProbe;
  class Background;
  std::unique_ptr<State> state_;
};

}  // namespace pc
