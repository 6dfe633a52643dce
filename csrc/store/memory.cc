#include "store/memory.h"

#include <chrono>

namespace pc {

Result<StoreAnswer> MemoryStore::run(const StoreCall& call, StoreDeadline deadline) {
  const bool may_wait = waits(call.op) && call.number != kAtOnce;
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    Result<StoreAnswer> answer = values_.run(call);
    if (!may_wait) {
      changed_.notify_all();
      return answer;
    }
    if (!answer.is_ok() || answer.value().number != kMissing) return answer;
    if (deadline.expired()) return key_timeout(call.key, true);
    const std::chrono::milliseconds slice(deadline.slice_ms());
    if (changed_.wait_for(lock, slice) == std::cv_status::timeout && interrupted_) {
      lock.unlock();
      if (interrupted_()) return Status(Code::kInterrupted, "interrupted while waiting for a store key");
      lock.lock();
    }
  }
}

}  // namespace pc
