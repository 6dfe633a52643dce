#include "transport/reactor.h"

#include <linux/futex.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "base/fd.h"

namespace pc {
namespace {

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected, int ms) {
  const timespec timeout{ms / 1000, (ms % 1000) * 1'000'000L};
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, &timeout, nullptr, 0);
}
void futex_wake(std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}
constexpr int kBackgroundSliceMs = 250;

}  // namespace

// ---- CompletionQueue

CompletionQueue::CompletionQueue() = default;
CompletionQueue::~CompletionQueue() {
  const std::lock_guard lock(mutex_);  // the thread that completed the last item may still hold the lock
}

void CompletionQueue::complete(Completion&& completion) {
  // Everything happens under the lock: the thread that takes the completion must acquire the lock
  // first, and may then destroy this queue.
  const std::lock_guard lock(mutex_);
  items_.push_back(std::move(completion));
  const uint32_t before = word_.fetch_add(kOne, std::memory_order_acq_rel);
  if ((before & kInFutex) != 0) futex_wake(word_);
  if ((before & kInEpoll) != 0) ::eventfd_write(wake_fd_.load(std::memory_order_relaxed), 1);
  if (notifier_ != nullptr && before < kOne)
    notifier_->complete(Completion{notifier_token_, Status(), {}, 0});
}

void CompletionQueue::notify(CompletionSink* notifier, uint64_t token) {
  const std::lock_guard lock(mutex_);
  notifier_ = notifier;
  notifier_token_ = token;
  if (notifier != nullptr && !empty()) notifier->complete(Completion{token, Status(), {}, 0});
}

bool CompletionQueue::take(Completion& out) {
  if (empty()) return false;
  const std::lock_guard lock(mutex_);
  out = std::move(items_[first_++]);
  if (first_ == items_.size()) {
    items_.clear();  // keeps its memory
    first_ = 0;
  } else if (first_ >= 1024 &&
             first_ * 2 >= items_.size()) {  // never drained entirely: releases the items that were taken
    items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }
  word_.fetch_sub(kOne, std::memory_order_release);
  return true;
}

void CompletionQueue::sleep_in_futex(int ms) {
  const uint32_t word = word_.fetch_or(kInFutex, std::memory_order_acq_rel) | kInFutex;
  if (word < kOne && (word & kNudged) == 0) futex_wait(word_, word, ms);
  word_.fetch_and(~(kInFutex | kNudged), std::memory_order_acq_rel);
}

template <class Sleep>
void CompletionQueue::sleep_in_epoll(int wake_fd, Sleep&& sleep) {
  wake_fd_.store(wake_fd, std::memory_order_relaxed);
  if (word_.fetch_or(kInEpoll, std::memory_order_acq_rel) < kOne) sleep();
  const std::lock_guard lock(mutex_);  // a thread that has seen kInEpoll has finished using wake_fd by now
  word_.fetch_and(~kInEpoll, std::memory_order_acq_rel);
}

void CompletionQueue::nudge() {
  const uint32_t before = word_.fetch_or(kNudged, std::memory_order_acq_rel);
  if ((before & kInFutex) != 0) futex_wake(word_);
}

// ---- Reactor

struct Reactor::State {
  explicit State(bool oversubscribed_) : oversubscribed(oversubscribed_), learned(oversubscribed_) {}

  std::size_t poll_all() {
    const std::lock_guard lock(sources_mutex);
    std::size_t moved = 0;
    for (Pollable* source : sources) moved += source->poll();
    return moved;
  }
  bool fall_asleep() {
    const std::lock_guard lock(sources_mutex);
    bool idle = true;
    for (Pollable* source : sources) idle = source->fall_asleep() && idle;
    return idle;
  }
  void wake_up() {
    const std::lock_guard lock(sources_mutex);
    for (Pollable* source : sources) source->wake_up();
  }
  // If the poll lock is free, wakes one of the threads that sleep without it, so that the woken
  // thread polls. The background thread is woken only if no other thread sleeps.
  void hand_over() {
    if (followers.load() == 0 || poll_lock.load()) return;
    const std::lock_guard lock(asleep_mutex);
    if (!asleep.empty())
      asleep.front()->nudge();
    else if (background != nullptr)
      background->nudge();
  }
  bool try_take() { return !poll_lock.load() && !poll_lock.exchange(true); }
  // The caller holds the poll lock.
  void sleep_for_all(CompletionQueue& queue, int ms) {
    queue.sleep_in_epoll(event.get(), [&] {
      epoll_event events[4];
      const bool idle = fall_asleep();
      const int count = idle ? ::epoll_wait(epoll.get(), events, 4, ms) : 0;
      wake_up();
      for (int i = 0; i < count; ++i) {
        if (events[i].data.ptr != nullptr) continue;
        eventfd_t ignored = 0;
        ::eventfd_read(event.get(), &ignored);
      }
    });
  }
  void count_followers() {  // asleep_mutex is held
    followers.store(static_cast<uint32_t>(asleep.size() + (background == nullptr ? 0 : 1)));
  }

  const bool oversubscribed;
  Fd epoll, event;           // `event` ends the sleep of the thread in epoll_wait
  int setup_errno = 0;       // why one of the two above failed
  std::mutex sources_mutex;  // guards sources; held while they are polled
  std::vector<Pollable*> sources;
  std::atomic<bool> poll_lock{false};  // true: one thread polls for all threads
  Waiter learned;                      // guarded by the poll lock: the spin budget learned so far
  // number of threads that sleep without the poll lock, readable without asleep_mutex
  std::atomic<uint32_t> followers{0};
  std::mutex asleep_mutex;               // guards asleep and background
  std::vector<CompletionQueue*> asleep;  // queues of the sleeping threads without the poll lock
  // the queue of the background thread while it sleeps without the poll lock
  CompletionQueue* background = nullptr;
  std::atomic<bool> has_background{false};      // a thread is in wait_in_background()
  std::atomic<bool> held_in_background{false};  // a thread is in wait_in_background() and has the poll lock
  std::atomic<uint32_t> in_foreground{0};       // threads in wait(), counted while a background thread exists
};

// One thread's call of wait(), with or without the poll lock.
class Reactor::WaitScope {
 public:
  WaitScope(State& state, CompletionQueue& queue)
      : state_(state),
        queue_(queue),
        waiter_(state.oversubscribed) {
    if (enter()) waiter_ = state_.learned;
  }
  ~WaitScope() { let_go(); }
  WaitScope(const WaitScope&) = delete;
  WaitScope& operator=(const WaitScope&) = delete;

  Waiter& waiter() { return waiter_; }
  // Lets another thread poll. The next look() tries to take the poll lock again.
  void let_go() {
    if (held_) {
      state_.learned = waiter_;
      state_.poll_lock.store(false);
      held_ = false;
    }
    if (counted_) {
      counted_ = false;
      state_.in_foreground.fetch_sub(1);
    }
    // Needed even if this thread did not hold the poll lock: it may have received a nudge, which it
    // must then pass on.
    state_.hand_over();
  }
  // Returns true if the wait may be over: this queue has a completion, or a frame has moved.
  bool look() {
    if (!queue_.empty()) return true;
    if (!held_ && !enter()) return false;
    return state_.poll_all() > 0 || !queue_.empty();
  }
  void sleep(int ms) {
    if (held_ || enter()) {  // the probe may have released the lock since the last look()
      state_.sleep_for_all(queue_, ms);
    } else {
      sleep_alone(ms);
    }
  }

 private:
  bool try_take() { return held_ = state_.try_take(); }
  // Tries to take the poll lock. If a background thread holds the lock, notifies that thread to
  // release it.
  bool enter() {
    if (!counted_ && state_.has_background.load()) {
      counted_ = true;
      state_.in_foreground.fetch_add(1);
      if (try_take()) return true;
      if (state_.held_in_background.load()) ::eventfd_write(state_.event.get(), 1);
    }
    return try_take();
  }
  void sleep_alone(int ms) {
    {
      const std::lock_guard lock(state_.asleep_mutex);
      state_.asleep.push_back(&queue_);
      state_.count_followers();
    }
    // Tries to take the poll lock only after this queue is in the list: either this thread sees the
    // lock free, or the lock's holder sees this queue.
    if (!try_take()) queue_.sleep_in_futex(ms);
    const std::lock_guard lock(state_.asleep_mutex);
    state_.asleep.erase(std::find(state_.asleep.begin(), state_.asleep.end(), &queue_));
    state_.count_followers();
  }

  State& state_;
  CompletionQueue& queue_;
  bool held_ = false;
  bool counted_ = false;  // in State::in_foreground
  Waiter waiter_;
};

Reactor::Reactor(bool oversubscribed) : state_(std::make_unique<State>(oversubscribed)) {
  state_->epoll.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!state_->epoll.valid()) state_->setup_errno = errno;
  state_->event.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!state_->event.valid()) state_->setup_errno = errno;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = nullptr;  // distinguishes it from the sources
  if (state_->setup_errno == 0 &&
      ::epoll_ctl(state_->epoll.get(), EPOLL_CTL_ADD, state_->event.get(), &event) != 0) {
    state_->setup_errno = errno;
  }
}
Reactor::~Reactor() = default;

Status Reactor::add(Pollable* source) {
  if (state_->setup_errno != 0)
    return system_error("epoll_create or eventfd for the reactor", state_->setup_errno);
  const std::lock_guard lock(state_->sources_mutex);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = source;
  if (::epoll_ctl(state_->epoll.get(), EPOLL_CTL_ADD, source->wait_fd(), &event) != 0) {
    return system_error("epoll_ctl for transport " + std::string(source->name()), errno);
  }
  state_->sources.push_back(source);
  return Status::ok();
}

void Reactor::remove(Pollable* source) {
  const std::lock_guard lock(state_->sources_mutex);
  std::vector<Pollable*>& all = state_->sources;
  const std::vector<Pollable*>::iterator at = std::find(all.begin(), all.end(), source);
  if (at == all.end()) return;
  ::epoll_ctl(state_->epoll.get(), EPOLL_CTL_DEL, source->wait_fd(), nullptr);
  all.erase(at);
}

// The probe may wait for another thread of this process, so the poll lock is released.
class Reactor::InProbe final : public ProbeScope {
 public:
  InProbe(WaitScope& scope, WaitContext& context) : ProbeScope(context), scope_(scope) {}
  void enter() override { scope_.let_go(); }
  void leave() override {}

 private:
  WaitScope& scope_;
};

WaitEnd Reactor::wait(CompletionQueue& queue, const WaitContext& context) {
  if (!queue.empty()) return WaitEnd::kReady;
  WaitScope scope(*state_, queue);
  WaitContext without_poll_lock = context;
  const InProbe in_probe(scope, without_poll_lock);
  TimePoint looked_at_context{};
  for (;;) {
    const WaitEnd end = scope.waiter().wait(
        without_poll_lock, [&] { return scope.look(); }, [&](int ms) { scope.sleep(ms); });
    if (!queue.empty()) return WaitEnd::kReady;
    if (end != WaitEnd::kReady) return end;
    // Frames have moved, but none for this queue: polls again. The context must be checked from
    // time to time even during steady traffic.
    const TimePoint now = pc::now();
    if (looked_at_context == TimePoint{}) looked_at_context = now;
    if (now - looked_at_context < std::chrono::milliseconds(Deadline::kSliceMs) &&
        now < context.deadline.when())
      continue;
    looked_at_context = now;
    const WaitEnd seen = Waiter::check(without_poll_lock);
    if (seen != WaitEnd::kReady) return seen;
  }
}

bool Reactor::poll(CompletionQueue& queue) {
  if (!queue.empty()) return true;
  if (state_->try_take()) {
    state_->poll_all();
    state_->poll_lock.store(false);
    state_->hand_over();
  }
  return !queue.empty();
}

bool Reactor::polls_in_background() const { return state_->held_in_background.load(); }

// One call of wait_in_background().
class Reactor::Background {
 public:
  Background(State& state, CompletionQueue& queue) : state_(state), queue_(queue) {
    state_.has_background.store(true);
  }
  ~Background() {
    state_.has_background.store(false);
    state_.hand_over();  // passes on a nudge that this thread may have received
  }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  void sleep(int ms) {
    if (take()) {
      state_.sleep_for_all(queue_, ms);
      if (state_.in_foreground.load() == 0) state_.poll_all();
      give();
    } else {
      sleep_alone(ms);
    }
  }

 private:
  // The order of the checks ensures one of two things: this thread sees that another thread has
  // entered wait(), or the other thread sees held_in_background and wakes this thread.
  bool take() {
    if (state_.in_foreground.load() != 0 || !state_.try_take()) return false;
    state_.held_in_background.store(true);
    if (state_.in_foreground.load() == 0) return true;
    give();
    return false;
  }
  void give() {
    state_.held_in_background.store(false);
    state_.poll_lock.store(false);
    state_.hand_over();
  }
  void sleep_alone(int ms) {
    set_asleep(&queue_);
    // Checks the poll lock only now, as in WaitScope: either this thread sees the lock free, or the
    // thread that releases the lock sees this queue.
    const bool free = state_.in_foreground.load() == 0 && !state_.poll_lock.load();
    if (!free) queue_.sleep_in_futex(ms);
    set_asleep(nullptr);
  }
  void set_asleep(CompletionQueue* queue) {
    const std::lock_guard lock(state_.asleep_mutex);
    state_.background = queue;
    state_.count_followers();
  }

  State& state_;
  CompletionQueue& queue_;
};

WaitEnd Reactor::wait_in_background(CompletionQueue& queue, const WaitContext& context) {
  if (!queue.empty()) return WaitEnd::kReady;
  Background background(*state_, queue);
  for (;;) {
    if (!queue.empty()) return WaitEnd::kReady;
    const WaitEnd seen = Waiter::check(context);
    if (seen != WaitEnd::kReady) return seen;
    background.sleep(context.deadline.slice_ms(kBackgroundSliceMs));
  }
}

void Reactor::close_in_child() noexcept {
  state_->epoll.reset();
  state_->event.reset();
}

void Reactor::wake() {
  ::eventfd_write(state_->event.get(), 1);
  const std::lock_guard lock(state_->asleep_mutex);
  for (CompletionQueue* queue : state_->asleep) queue->nudge();
  if (state_->background != nullptr) state_->background->nudge();
}

}  // namespace pc
