#include "store/memory.h"

#include "store/limits.h"

namespace pc {

Status MemoryStore::set(std::string_view key, std::string_view value, Deadline) {
  PC_TRY(check_entry(key, value));
  const std::lock_guard<std::mutex> lock(mutex_);
  values_.insert_or_assign(std::string(key), std::string(value));
  changed_.notify_all();
  return Status::ok();
}

Result<std::string> MemoryStore::get(std::string_view key, Deadline deadline) {
  PC_TRY(check_key(key));
  std::unique_lock<std::mutex> lock(mutex_);
  auto found = values_.end();
  const auto is_set = [&] { return (found = values_.find(key)) != values_.end(); };
  if (!changed_.wait_until(lock, deadline.when(), is_set)) return key_timeout(key);
  return found->second;
}

Result<int64_t> MemoryStore::add(std::string_view key, int64_t delta, Deadline) {
  PC_TRY(check_key(key));
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = values_.find(key);
  std::optional<std::string_view> stored;
  if (found != values_.end()) stored = found->second;
  PC_ASSIGN_OR_RETURN(const int64_t sum, added(key, stored, delta));
  values_.insert_or_assign(std::string(key), std::to_string(sum));
  changed_.notify_all();
  return sum;
}

Status MemoryStore::erase(std::string_view key, Deadline) {
  PC_TRY(check_key(key));
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = values_.find(key);
  if (found != values_.end()) values_.erase(found);
  return Status::ok();
}

}  // namespace pc
