// Waits for completions on behalf of every thread of a process. The thread that holds the poll lock
// polls the transports for all threads; the other waiting threads sleep on their own queues. The
// reactor has no thread of its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "base/waiter.h"
#include "transport/transport.h"

namespace pc {

// Collects the completions of one operation's owner (a plan run, a send, a receive). Any thread may
// complete; one thread takes. The queue may be destroyed once no posted operation reports to it any
// more, even while complete() is returning.
class CompletionQueue final : public CompletionSink {
 public:
  CompletionQueue();
  ~CompletionQueue();
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;
  void complete(Completion&& completion) override;
  bool take(Completion& out);  // returns false if it is empty
  // From now on `notifier` is completed with `token` whenever a completion arrives while this queue
  // is empty, and at once if the queue is not empty now. A thread that serves many queues uses
  // this. Pass null to stop notifications. Thread-safety: any thread may call it.
  void notify(CompletionSink* notifier, uint64_t token);
  bool empty() const { return word_.load(std::memory_order_acquire) < kOne; }

 private:
  friend class Reactor;
  void sleep_in_futex(int ms);  // called by the thread that takes; ends early at a completion or a nudge
  template <class Sleep>
  void sleep_in_epoll(int wake_fd, Sleep&& sleep);
  void nudge();  // ends or prevents the next sleep_in_futex

  static constexpr uint32_t kInFutex = 1, kInEpoll = 2, kNudged = 4, kOne = 8;
  std::atomic<uint32_t> word_{0};  // the bits above, plus the number of items times kOne; a futex word
  std::atomic<int> wake_fd_{-1};   // eventfd that ends the taking thread's sleep while kInEpoll is set
  std::mutex mutex_;               // guards the members below; complete() holds it until it returns
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
  Status add(Pollable* source);  // `source` is not owned; remove it before it is destroyed
  void remove(Pollable* source);
  // Polls until `queue` has a completion or the wait ends otherwise. Completions for other queues
  // may arrive meanwhile. Only the thread that takes from `queue` may call it.
  WaitEnd wait(CompletionQueue& queue, const WaitContext& context);
  // Polls once unless another thread is polling. Returns true if `queue` has a completion. Used by
  // threads that also wait for other events.
  bool poll(CompletionQueue& queue);
  // Returns true if the background thread holds the poll lock. It releases the lock to a thread
  // that enters wait(), but not to a caller of poll().
  bool polls_in_background() const;
  // Like wait(), for a background thread with no caller waiting on it: sleeps without spinning, and
  // lets a thread that enters wait() take over polling. Only one thread at a time may call this.
  WaitEnd wait_in_background(CompletionQueue& queue, const WaitContext& context);
  void close_in_child() noexcept;  // for a forked child: closes the descriptors; no other call may follow
  void wake();  // makes every thread that sleeps in wait() check its conditions again (abort words, new work)

 private:
  struct State;
  class WaitScope;
  class InProbe;
  class Background;
  std::unique_ptr<State> state_;
};

}  // namespace pc
