#include "store/prefix.h"

#include "store/limits.h"

namespace pc {

Status PrefixStore::shown(const Status& status) const {
  const std::size_t at = status.message().find("'" + prefix_);
  if (status.is_ok() || at == std::string::npos) return status;
  return Status(status.code(), std::string(status.message()).erase(at + 1, prefix_.size()))
      .with_peer(status.peer());
}

Status PrefixStore::set(std::string_view key, std::string_view value, StoreDeadline deadline) {
  PC_TRY(check_entry(key, value));
  return shown(inner_->set(full(key), value, deadline));
}

Result<std::string> PrefixStore::get(std::string_view key, StoreDeadline deadline) {
  PC_TRY(check_key(key));
  Result<std::string> value = inner_->get(full(key), deadline);
  return value.is_ok() ? std::move(value) : shown(value.status());
}

Result<std::string> PrefixStore::pop(std::string_view key, StoreDeadline deadline) {
  PC_TRY(check_key(key));
  Result<std::string> value = inner_->pop(full(key), deadline);
  return value.is_ok() ? std::move(value) : shown(value.status());
}

Status PrefixStore::wait(std::string_view key, StoreDeadline deadline) {
  PC_TRY(check_key(key));
  return shown(inner_->wait(full(key), deadline));
}

Result<int64_t> PrefixStore::add(std::string_view key, int64_t delta, StoreDeadline deadline) {
  PC_TRY(check_key(key));
  const Result<int64_t> sum = inner_->add(full(key), delta, deadline);
  return sum.is_ok() ? sum : shown(sum.status());
}

Status PrefixStore::erase(std::string_view key, StoreDeadline deadline) {
  PC_TRY(check_key(key));
  return inner_->erase(full(key), deadline);
}

Status PrefixStore::erase_all(std::string_view prefix, StoreDeadline deadline) {
  return inner_->erase_all(full(prefix), deadline);
}

}  // namespace pc
