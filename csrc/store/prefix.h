// A part of another store: every key gets a prefix, so that several jobs or epochs can share one.
#pragma once

#include <memory>
#include <string>

#include "store/store.h"

namespace pc {

// Thread-safety: all methods.
class PrefixStore final : public Store {
 public:
  PrefixStore(std::string prefix, std::shared_ptr<Store> inner)
      : prefix_(std::move(prefix)),
        inner_(std::move(inner)) {}
  Status set(std::string_view key, std::string_view value, StoreDeadline deadline) override;
  Result<std::string> get(std::string_view key, StoreDeadline deadline) override;
  Result<std::string> pop(std::string_view key, StoreDeadline deadline) override;
  Status wait(std::string_view key, StoreDeadline deadline) override;
  Result<int64_t> add(std::string_view key, int64_t delta, StoreDeadline deadline) override;
  Status erase(std::string_view key, StoreDeadline deadline) override;
  Status erase_all(std::string_view prefix, StoreDeadline deadline) override;  // "": all that this part holds
  void close_in_child() noexcept override { inner_->close_in_child(); }

 private:
  Status shown(const Status& status) const;  // in which the key is called as its user called it
  std::string full(std::string_view key) const { return prefix_ + std::string(key); }
  const std::string prefix_;
  const std::shared_ptr<Store> inner_;
};

}  // namespace pc
