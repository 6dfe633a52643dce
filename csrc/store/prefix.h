// A part of another store: every key gets a prefix, so that several jobs or epochs can share one.
#pragma once

#include <memory>
#include <string>

#include "store/store.h"

namespace pc {

// Thread-safety: all methods. As a prefix of keys "" means all that this part holds.
class PrefixStore final : public Store {
 public:
  PrefixStore(std::string prefix, std::shared_ptr<Store> inner)
      : prefix_(std::move(prefix)),
        inner_(std::move(inner)) {}
  void close_in_child() noexcept override { inner_->close_in_child(); }

 private:
  Result<StoreAnswer> run(const StoreCall& call, StoreDeadline deadline) override;
  Status shown(const Status& status) const;  // in which the key is called as its user called it

  const std::string prefix_;
  const std::shared_ptr<Store> inner_;
};

}  // namespace pc
