#include "gpu/fifo_lock.h"

#include <algorithm>

#include "base/wait_in_slices.h"

namespace pc {

void FifoLock::let_go() {
  {
    const std::lock_guard lock(mutex_);
    taken_ = false;
    waiting_.pop_front();
  }
  changed_.notify_all();
}

bool FifoLock::is_mine() const {
  const std::lock_guard lock(mutex_);
  return taken_ && waiting_.front() == std::this_thread::get_id();
}

std::optional<FifoLock::Held> FifoLock::take_now() {
  const std::lock_guard lock(mutex_);
  if (!waiting_.empty()) return std::nullopt;
  waiting_.push_back(std::this_thread::get_id());
  taken_ = true;
  return Held(this);
}

Result<FifoLock::Held> FifoLock::take(Communicator& group, Deadline deadline) {
  if (std::optional<Held> at_once = take_now()) return std::move(*at_once);
  const std::thread::id me = std::this_thread::get_id();
  std::unique_lock lock(mutex_);
  if (std::find(waiting_.begin(), waiting_.end(), me) != waiting_.end())
    return Status(Code::kInvalidArgument,
                  "a signal handler that runs while this group " + doing_ + " cannot make a call there");
  waiting_.push_back(me);
  const Status waited = wait_in_slices(lock, changed_, group.waiting_until(deadline), [&]() -> Result<bool> {
    if (!taken_ && waiting_.front() == me) return taken_ = true;
    PC_TRY(group.alive());
    return false;
  });
  if (!waited.is_ok()) waiting_.erase(std::find(waiting_.begin(), waiting_.end(), me));
  lock.unlock();
  if (waited.is_ok()) return Held(this);
  changed_.notify_all();
  PC_TRY(group.alive());
  if (waited.code() != Code::kTimeout) return waited;
  return Status(Code::kTimeout, "this group " + doing_ +
                                    " in one thread of a rank at a time, and another one " +
                                    "had not got through when the deadline passed")
      .with_rank(group.rank());
}

}  // namespace pc
