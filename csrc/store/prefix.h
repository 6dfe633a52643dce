// A part of another store: adds a prefix to every key, so that several jobs or epochs can share one
// store.
#pragma once

#include <memory>
#include <string>

#include "store/store.h"

namespace pc {

// Thread-safety: all methods. The key prefix "" selects all keys of this part.
class PrefixStore final : public Store {
 public:
  PrefixStore(std::string prefix, std::shared_ptr<Store> inner)
      : prefix_(std::move(prefix)),
        inner_(std::move(inner)) {}
  void close_in_child() noexcept override { inner_->close_in_child(); }

 private:
  Result<StoreAnswer> run(const StoreCall& call, StoreDeadline deadline) override;
  Status shown(const Status& status) const;  // the status with the key as the user named it

  const std::string prefix_;
  const std::shared_ptr<Store> inner_;
};

}  // namespace pc
