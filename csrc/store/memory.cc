#include "store/memory.h"

#include <chrono>

#include "store/limits.h"

namespace pc {

Status MemoryStore::set(std::string_view key, std::string_view value, StoreDeadline) {
  PC_TRY(check_entry(key, value));
  const std::lock_guard<std::mutex> lock(mutex_);
  values_.insert_or_assign(std::string(key), std::string(value));
  changed_.notify_all();
  return Status::ok();
}

Result<MemoryStore::Values::iterator> MemoryStore::await(std::string_view key, Deadline deadline,
                                                         std::unique_lock<std::mutex>& lock) {
  PC_TRY(check_key(key));
  lock.lock();
  auto found = values_.end();
  const auto is_set = [&] { return (found = values_.find(key)) != values_.end(); };
  while (!changed_.wait_for(lock, std::chrono::milliseconds(deadline.slice_ms()), is_set)) {
    if (deadline.expired()) return key_timeout(key);
    lock.unlock();
    if (interrupted_ && interrupted_())
      return Status(Code::kInterrupted, "interrupted while waiting for a store key");
    lock.lock();
  }
  return found;
}

Result<std::string> MemoryStore::get(std::string_view key, StoreDeadline deadline) {
  std::unique_lock<std::mutex> lock(mutex_, std::defer_lock);
  PC_ASSIGN_OR_RETURN(const auto found, await(key, deadline, lock));
  return found->second;
}

Result<std::string> MemoryStore::pop(std::string_view key, StoreDeadline deadline) {
  std::unique_lock<std::mutex> lock(mutex_, std::defer_lock);
  PC_ASSIGN_OR_RETURN(const auto found, await(key, deadline, lock));
  std::string value = std::move(found->second);
  values_.erase(found);
  return value;
}

Status MemoryStore::wait(std::string_view key, StoreDeadline deadline) {
  std::unique_lock<std::mutex> lock(mutex_, std::defer_lock);
  return await(key, deadline, lock).status();
}

Result<int64_t> MemoryStore::add(std::string_view key, int64_t delta, StoreDeadline) {
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

Status MemoryStore::erase(std::string_view key, StoreDeadline) {
  PC_TRY(check_key(key));
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = values_.find(key);
  if (found != values_.end()) values_.erase(found);
  return Status::ok();
}

Status MemoryStore::erase_all(std::string_view prefix, StoreDeadline) {
  PC_TRY(check_key(prefix));
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto at = values_.lower_bound(prefix); at != values_.end() && at->first.starts_with(prefix);)
    at = values_.erase(at);
  return Status::ok();
}

}  // namespace pc
