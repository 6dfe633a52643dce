// A store inside one process, for worlds of threads.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>

#include "store/store.h"
#include "store/values.h"

namespace pc {

// Thread-safety: all methods.
class MemoryStore final : public Store {
 public:
  explicit MemoryStore(std::function<bool()> interrupted = {}) : interrupted_(std::move(interrupted)) {}

 private:
  Result<StoreAnswer> run(const StoreCall& call, StoreDeadline deadline) override;

  // returns true on Ctrl-C; called about every 50 ms of a wait, without mutex_
  const std::function<bool()> interrupted_;
  std::mutex mutex_;  // guards values_
  std::condition_variable changed_;
  StoreValues values_;
};

}  // namespace pc
