#include "comm/message_line.h"

#include <chrono>

namespace pc {
namespace {

constexpr std::chrono::milliseconds kSlice{20};  // between two looks at what no condition tells

}  // namespace

Status MessageLine::ended() { return failure_.is_ok() ? group_.alive() : failure_; }

Status MessageLine::end(const Status& why) {
  const std::lock_guard lock(mutex_);
  if (!failure_.is_ok()) return failure_;
  failure_ = group_.alive();
  if (failure_.is_ok()) group_.quit(failure_ = why);
  changed_.notify_all();
  return failure_;
}

Status MessageLine::go(const std::function<Status(uint64_t)>& launch) {
  const std::lock_guard going(going_);
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    PC_TRY(ended());
    number = ++launched_;
  }
  const Status launched = launch(number);
  return launched.is_ok() ? launched : end(launched);
}

Status MessageLine::follow(uint64_t number, const WaitContext& context,
                           const std::function<Status()>& launch) {
  std::unique_lock lock(mutex_);
  while (launched_ + 1 != number) {
    PC_TRY(ended());
    const bool late = context.deadline.remaining_s() <= 0;
    if (late || (context.interrupted != nullptr && *context.interrupted && (*context.interrupted)())) {
      lock.unlock();
      return end(Status(late ? Code::kTimeout : Code::kInterrupted,
                        "an earlier message of this line has not been launched"));
    }
    changed_.wait_for(lock, kSlice);
  }
  lock.unlock();
  const Status done = launch();
  if (!done.is_ok()) return end(done);
  lock.lock();
  launched_ = number;
  changed_.notify_all();
  return done;
}

void MessageLines::abort(const Status& why) {
  const std::lock_guard lock(mutex_);
  for (const auto& [ranks, line] : lines_) line->group().abort(why);
}

std::shared_ptr<MessageLine> MessageLines::between(Rank from, Rank to, int device) {
  const std::lock_guard lock(mutex_);
  const auto known = lines_.find({from, to});
  if (known != lines_.end()) return known->second->device() == device ? known->second : nullptr;
  if (lines_.size() >= kMost) return nullptr;
  const Result<Communicator*> group = runtime_.make_line(from, to);
  if (!group.is_ok()) return nullptr;
  return lines_[{from, to}] = std::make_shared<MessageLine>(*group.value(), device);
}

}  // namespace pc
