#include "operation/reentry.h"

#include <algorithm>

namespace pc {

void Reentry::enter(std::string operation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  inside_.push_back({std::this_thread::get_id(), std::move(operation)});
  probes_.store(static_cast<uint32_t>(inside_.size()), std::memory_order_relaxed);
}

void Reentry::leave() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::thread::id me = std::this_thread::get_id();
  std::erase_if(inside_, [&](const Entry& entry) { return entry.thread == me; });
  probes_.store(static_cast<uint32_t>(inside_.size()), std::memory_order_relaxed);
}

Status Reentry::refuse() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const Entry& entry : inside_) {
    if (entry.thread != std::this_thread::get_id()) continue;
    return Status(Code::kInvalidArgument, "called from a signal handler while this thread is inside " +
                                              entry.operation +
                                              ": let the handler set a flag or raise, and call after that");
  }
  return Status::ok();
}

}  // namespace pc
