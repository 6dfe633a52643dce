// Key-value rendezvous: how ranks find each other before any connection exists. Values are small (addresses, tables).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"

namespace pc {

inline constexpr std::size_t kMaxKeyBytes = std::size_t{4} * 1024;
inline constexpr std::size_t kMaxValueBytes = std::size_t{8} * 1024 * 1024;

// By when a call on a store ends. `one_way_s`: what the way to the store and back may take all the same, so
// that a look at what is there without waiting, or after the deadline, comes to something.
struct StoreDeadline : Deadline {
  StoreDeadline(Deadline deadline, double way = 0)  // NOLINT(google-explicit-constructor): a deadline is one
      : Deadline(deadline),
        one_way_s(way) {}
  double one_way_s;
};

enum class StoreOp : uint8_t {
  kSet = 1,
  kGet = 2,
  kAdd = 3,
  kErase = 4,
  kPop = 5,
  kWait = 6,
  kEraseAll = 7,
  kKeys = 8,
  kCompareSet = 9,
  kAppend = 10
};
inline bool waits(StoreOp op) { return op == StoreOp::kGet || op == StoreOp::kPop || op == StoreOp::kWait; }

inline constexpr int64_t kAtOnce = 1;   // the number of a get, pop or wait that does not wait for its key
inline constexpr int64_t kMissing = 1;  // the number of the answer to it if the key is missing

// What a method of a store asks for; store/protocol.h says what `value` and `number` are for each operation.
struct StoreCall {
  StoreOp op = StoreOp::kGet;
  std::string_view key = {};
  std::string_view value = {};
  int64_t number = 0;
};
struct StoreAnswer {
  std::string value = {};
  int64_t number = 0;
};

// Thread-safety: all methods. Every call has a deadline; an expired one is kTimeout and names the key.
class Store {
 public:
  virtual ~Store() = default;
  Status set(std::string_view key, std::string_view value, StoreDeadline deadline);
  Result<std::string> get(std::string_view key, StoreDeadline deadline);  // waits for the key
  Result<std::string> pop(std::string_view key,
                          StoreDeadline deadline);            // the same, and erases it: one pop gets it
  Status wait(std::string_view key, StoreDeadline deadline);  // the same, without the value
  Result<std::optional<std::string>> try_get(std::string_view key, StoreDeadline deadline);  // does not wait
  Result<bool> check(std::string_view key, StoreDeadline deadline);  // whether it is there; does not wait
  // A missing key counts as 0. Returns the new value.
  Result<int64_t> add(std::string_view key, int64_t delta, StoreDeadline deadline);
  Status append(std::string_view key, std::string_view value, StoreDeadline deadline);
  // Puts `desired` in place of `expected`, and if `expected` is empty where the key is missing. Returns what the key holds
  // then, and `expected` if it is missing still.
  Result<std::string> compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                                  StoreDeadline deadline);
  Result<bool> erase(std::string_view key, StoreDeadline deadline);   // whether it was there
  Status erase_all(std::string_view prefix, StoreDeadline deadline);  // every key that begins so
  Result<std::vector<std::string>> keys(std::string_view prefix, StoreDeadline deadline);  // the same, sorted

  // What each of these comes down to.
  Result<StoreAnswer> call(const StoreCall& call, StoreDeadline deadline);
  // In a forked child: closes every descriptor. Nothing may follow.
  virtual void close_in_child() noexcept {}

 private:
  // The key and the value are within their limits.
  virtual Result<StoreAnswer> run(const StoreCall& call, StoreDeadline deadline) = 0;
  Result<StoreAnswer> look(StoreOp op, std::string_view key, StoreDeadline deadline);
};

// The error of a get, pop or wait that has waited in vain. `is_sure`: the store has said that the key is missing.
Status key_timeout(std::string_view key, bool is_sure);

}  // namespace pc
