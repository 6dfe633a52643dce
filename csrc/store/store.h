// Key-value rendezvous: through it the ranks find each other before any connection exists. Values
// are small (addresses, tables).
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

// When a call on a store ends. The exchange with the store may take `one_way_s` even past the
// deadline, so that a request without a wait, or after the deadline, still gets an answer.
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
inline constexpr int64_t kMissing = 1;  // the number of its answer if the key is missing

// A request to a store; store/protocol.h specifies `value` and `number` for each operation.
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

// Thread-safety: all methods. Every call has a deadline; when it passes, the call returns kTimeout
// and names the key.
class Store {
 public:
  virtual ~Store() = default;
  Status set(std::string_view key, std::string_view value, StoreDeadline deadline);
  Result<std::string> get(std::string_view key, StoreDeadline deadline);  // waits for the key
  Result<std::string> pop(std::string_view key,
                          // waits, returns the value and erases the key: only one pop gets it
                          StoreDeadline deadline);
  Status wait(std::string_view key, StoreDeadline deadline);  // waits for the key, returns no value
  Result<std::optional<std::string>> try_get(std::string_view key, StoreDeadline deadline);  // does not wait
  Result<bool> check(std::string_view key, StoreDeadline deadline);  // whether the key exists; does not wait
  // A missing key counts as 0. Returns the new value.
  Result<int64_t> add(std::string_view key, int64_t delta, StoreDeadline deadline);
  Status append(std::string_view key, std::string_view value, StoreDeadline deadline);
  // Replaces `expected` with `desired`; an empty `expected` also matches a missing key. Returns the
  // key's value after the call, or `expected` if the key is still missing.
  Result<std::string> compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                                  StoreDeadline deadline);
  Result<bool> erase(std::string_view key, StoreDeadline deadline);   // whether the key existed
  Status erase_all(std::string_view prefix, StoreDeadline deadline);  // every key that begins with `prefix`
  // every key that begins with `prefix`, sorted
  Result<std::vector<std::string>> keys(std::string_view prefix, StoreDeadline deadline);

  // The request that each method above makes.
  Result<StoreAnswer> call(const StoreCall& call, StoreDeadline deadline);
  // In a forked child: closes every descriptor. No other call may follow.
  virtual void close_in_child() noexcept {}

 private:
  // Precondition: the key and the value are within their limits.
  virtual Result<StoreAnswer> run(const StoreCall& call, StoreDeadline deadline) = 0;
  Result<StoreAnswer> look(StoreOp op, std::string_view key, StoreDeadline deadline);
};

// The error of a get, pop or wait that timed out. `is_sure`: the store has reported that the key is
// missing.
Status key_timeout(std::string_view key, bool is_sure);

}  // namespace pc
