#include "comm/turn.h"

#include "cuda/host_wait.h"

namespace pc {

std::shared_ptr<void> Turn::held() {
  holder_ = std::this_thread::get_id();
  return std::shared_ptr<void>(this, [this](void*) {
    holder_ = std::thread::id();
    mutex_.unlock();
  });
}

std::shared_ptr<void> Turn::take_now() { return !is_mine() && mutex_.try_lock() ? held() : nullptr; }

Result<std::shared_ptr<void>> Turn::take(Communicator& group, Deadline deadline) {
  if (is_mine())
    return Status(Code::kInvalidArgument,
                  "a signal handler that runs while this group " + doing_ + " cannot make a call there");
  PC_ASSIGN_OR_RETURN(const WaitEnd end,
                      cuda::wait_on_host([&]() -> Result<bool> { return mutex_.try_lock(); },
                                         {group.waiting_until(deadline)}));
  switch (end) {
    case WaitEnd::kReady: return held();
    case WaitEnd::kAborted: PC_TRY(group.alive()); break;
    case WaitEnd::kInterrupted: return Status(Code::kInterrupted, "interrupted");
    case WaitEnd::kTimeout: break;
  }
  return Status(Code::kTimeout,
                "another thread of this rank has not got through: this group " + doing_ + " there")
      .with_rank(group.rank());
}

}  // namespace pc
