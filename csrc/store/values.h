// Keys and values, and the effect of each operation on them. This class does not wait and has no
// sockets and no clock.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "store/store.h"

namespace pc {

struct StoreLimits {
  std::size_t keys = 100'000;
  std::size_t total_nbytes = std::size_t{1} << 30;  // of all keys and values
};

// Thread-safety: none.
class StoreValues {
 public:
  explicit StoreValues(const StoreLimits& limits = {}) : limits_(limits) {}

  // Answers a get, pop or wait of a missing key with kMissing, whether or not `call.number` is
  // kAtOnce.
  Result<StoreAnswer> run(const StoreCall& call);
  const std::string* find(std::string_view key) const;  // null if the key is missing
  bool erase(std::string_view key);                     // returns true if the key existed

 private:
  Status put(std::string_view key, std::string_view value);
  Result<StoreAnswer> add(std::string_view key, int64_t delta);
  Result<StoreAnswer> compare_set(const StoreCall& call);
  Status append(std::string_view key, std::string_view value);
  void erase_all(std::string_view prefix);
  StoreAnswer keys(std::string_view prefix, std::string_view after) const;

  const StoreLimits limits_;
  std::map<std::string, std::string, std::less<>> values_;
  std::size_t nbytes_ = 0;
};

}  // namespace pc
