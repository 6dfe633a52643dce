#include "operation/progress.h"

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "base/start_thread.h"

namespace pc {
namespace {

constexpr std::chrono::milliseconds kProgressRound{100};  // interval at which all calls are checked

}  // namespace

Status Progress::start() {
  const std::lock_guard lock(mutex_);
  if (thread_.joinable()) return Status::ok();
  if (stopping_) return Status(Code::kNotInitialized, "this world is shut down");
  return start_thread(thread_, "pc-progress", "starting the progress thread", [this] { run(); });
}

std::shared_ptr<AsyncWork> Progress::add(HostWork::Start start) {
  std::shared_ptr<HostWork> call;
  bool is_first = false, is_next = false;
  {
    const std::lock_guard lock(mutex_);
    const uint64_t id = next_id_++;
    call = std::make_shared<HostWork>(*this, id, std::move(start));
    call->claimed_ = true;  // so that no thread drives the call before its notifier is set
    is_first = calls_.empty();
    calls_.emplace(id, call);
    due_.emplace(call->due(), id);
    is_next = due_.begin()->second == id;
    if (is_first) needed_.notify_one();
  }
  if (is_next && !is_first) notifier_.complete(Completion{kWake, Status(), {}, 0});
  call->let_go();
  return call;
}

void Progress::forget(uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto found = calls_.find(id);
  if (found == calls_.end()) return;
  due_.erase({found->second->due(), id});
  calls_.erase(found);
}

void Progress::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_.store(true);
    needed_.notify_one();
  }
  notifier_.complete(Completion{kWake, Status(), {}, 0});
  if (thread_.joinable()) thread_.join();
  std::map<uint64_t, std::shared_ptr<HostWork>> left;
  {
    const std::lock_guard lock(mutex_);
    left = calls_;
  }
  for (const auto& [id, call] : left) call->end_now();
}

void Progress::look_at_all() {
  const std::lock_guard lock(mutex_);
  if (!calls_.empty())
    // without calls the thread would not take the completion
    notifier_.complete(Completion{kAll, Status(), {}, 0});
}

// ---- the thread

void Progress::run() {
  TimePoint look_at = now() + kProgressRound;
  while (wait_until_needed()) {
    (void)reactor_.wait_in_background(notifier_, {Deadline(std::min(look_at, next_deadline()))});
    listen();
    end_overdue();
    if (now() < look_at) continue;
    poll_all();
    look_at = now() + kProgressRound;
  }
}

bool Progress::wait_until_needed() {
  std::unique_lock lock(mutex_);
  needed_.wait(lock, [this] { return stopping() || !calls_.empty(); });
  return !stopping();
}

TimePoint Progress::next_deadline() const {
  const std::lock_guard lock(mutex_);
  return due_.empty() ? TimePoint::max() : due_.begin()->first;
}

void Progress::listen() {
  for (Completion notified; notifier_.take(notified);) {
    if (notified.token == kAll)
      poll_all();
    else if (const std::shared_ptr<HostWork> call = find(notified.token); call != nullptr)
      call->go_on();
  }
}

void Progress::end_overdue() {
  const TimePoint now = pc::now();
  std::vector<std::shared_ptr<HostWork>> overdue;
  {
    const std::lock_guard lock(mutex_);
    while (!due_.empty() && due_.begin()->first <= now) {
      overdue.push_back(calls_.at(due_.begin()->second));
      // one check is enough: a thread that has claimed the call checks the deadline itself
      due_.erase(due_.begin());
    }
  }
  for (const std::shared_ptr<HostWork>& call : overdue) call->look(now);
}

void Progress::poll_all() {
  const TimePoint now = pc::now();
  std::vector<std::shared_ptr<HostWork>> all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, call] : calls_) all.push_back(call);
  }
  for (const std::shared_ptr<HostWork>& call : all) call->look(now);
}

std::shared_ptr<HostWork> Progress::find(uint64_t id) const {
  const std::lock_guard lock(mutex_);
  const auto found = calls_.find(id);
  return found == calls_.end() ? nullptr : found->second;
}

}  // namespace pc
