#include "operation/reentry.h"

#include <algorithm>

namespace pc {

Reentry::Inside::Inside(Reentry& reentry, std::string operation) : reentry_(reentry) {
  const std::lock_guard<std::mutex> lock(reentry_.mutex_);
  reentry_.inside_.push_back({std::this_thread::get_id(), std::move(operation)});
  reentry_.probes_.store(static_cast<uint32_t>(reentry_.inside_.size()), std::memory_order_relaxed);
}

Reentry::Inside::~Inside() {
  const std::lock_guard<std::mutex> lock(reentry_.mutex_);
  const std::thread::id me = std::this_thread::get_id();
  std::erase_if(reentry_.inside_, [&](const Entry& entry) { return entry.thread == me; });
  reentry_.probes_.store(static_cast<uint32_t>(reentry_.inside_.size()), std::memory_order_relaxed);
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
