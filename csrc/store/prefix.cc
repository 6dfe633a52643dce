#include "store/prefix.h"

#include "store/limits.h"

namespace pc {

Status PrefixStore::set(std::string_view key, std::string_view value, Deadline deadline) {
  PC_TRY(check_entry(key, value));
  return inner_->set(full(key), value, deadline);
}

Result<std::string> PrefixStore::get(std::string_view key, Deadline deadline) {
  PC_TRY(check_key(key));
  return inner_->get(full(key), deadline);
}

Result<std::string> PrefixStore::pop(std::string_view key, Deadline deadline) {
  PC_TRY(check_key(key));
  return inner_->pop(full(key), deadline);
}

Status PrefixStore::wait(std::string_view key, Deadline deadline) {
  PC_TRY(check_key(key));
  return inner_->wait(full(key), deadline);
}

Result<int64_t> PrefixStore::add(std::string_view key, int64_t delta, Deadline deadline) {
  PC_TRY(check_key(key));
  return inner_->add(full(key), delta, deadline);
}

Status PrefixStore::erase(std::string_view key, Deadline deadline) {
  PC_TRY(check_key(key));
  return inner_->erase(full(key), deadline);
}

Status PrefixStore::erase_all(std::string_view prefix, Deadline deadline) {
  return inner_->erase_all(full(prefix), deadline);
}

}  // namespace pc
