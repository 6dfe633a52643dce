// A store inside one process, for worlds of threads.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "store/store.h"

namespace pc {

// Thread-safety: all methods.
class MemoryStore final : public Store {
 public:
  explicit MemoryStore(std::function<bool()> interrupted = {}) : interrupted_(std::move(interrupted)) {}
  Status set(std::string_view key, std::string_view value, StoreDeadline deadline) override;
  Result<std::string> get(std::string_view key, StoreDeadline deadline) override;
  Result<std::string> pop(std::string_view key, StoreDeadline deadline) override;
  Status wait(std::string_view key, StoreDeadline deadline) override;
  Result<int64_t> add(std::string_view key, int64_t delta, StoreDeadline deadline) override;
  Status erase(std::string_view key, StoreDeadline deadline) override;
  Status erase_all(std::string_view prefix, StoreDeadline deadline) override;

 private:
  using Values = std::map<std::string, std::string, std::less<>>;
  // Waits until it is there, the lock held before and after.
  Result<Values::iterator> await(std::string_view key, Deadline deadline, std::unique_lock<std::mutex>& lock);

  const std::function<bool()> interrupted_;  // Ctrl-C; asked about every 50 ms of a wait, without the lock
  std::mutex mutex_;                         // guards values_
  std::condition_variable changed_;
  Values values_;
};

}  // namespace pc
