// A store inside one process, for worlds of threads.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

#include "store/store.h"

namespace pc {

// Thread-safety: all methods.
class MemoryStore final : public Store {
 public:
  Status set(std::string_view key, std::string_view value, Deadline deadline) override;
  Result<std::string> get(std::string_view key, Deadline deadline) override;
  Result<int64_t> add(std::string_view key, int64_t delta, Deadline deadline) override;
  Status erase(std::string_view key, Deadline deadline) override;

 private:
  std::mutex mutex_;  // guards values_
  std::condition_variable changed_;
  std::map<std::string, std::string, std::less<>> values_;
};

}  // namespace pc
