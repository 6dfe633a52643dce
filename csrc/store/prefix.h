// A view of another store that adds a prefix to every key, so that several jobs or epochs can share
// one store.
#pragma once

#include <memory>
#include <string>

#include "store/store.h"

namespace pc {

// Thread-safety: all methods. In keys() and erase_all(), the empty prefix selects all keys of this
// view.
class PrefixStore final : public Store {
 public:
  PrefixStore(std::string prefix, std::shared_ptr<Store> inner)
      : prefix_(std::move(prefix)),
        inner_(std::move(inner)) {}
  void close_in_child() noexcept override { inner_->close_in_child(); }

 private:
  Result<StoreAnswer> run(const StoreCall& call, StoreDeadline deadline) override;
  // returns the status with the key as the caller named it, without the prefix
  Status shown(const Status& status) const;

  const std::string prefix_;
  const std::shared_ptr<Store> inner_;
};

}  // namespace pc
