// A key-value store through which the ranks find each other before they have any connection. Values
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

// The deadline of a call on a store. After the deadline, the call may still take `one_way_s`
// seconds to connect, and `one_way_s` seconds for an answer that does not wait for a key. A call
// that begins late therefore still gets an answer.
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

inline constexpr int64_t kAtOnce = 1;   // `number` of a get, pop or wait that does not wait for its key
inline constexpr int64_t kMissing = 1;  // `number` of the answer to a get, pop or wait if the key is missing

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
  // Waits for the key, returns its value and erases it. Only one pop gets the value.
  Result<std::string> pop(std::string_view key, StoreDeadline deadline);
  Status wait(std::string_view key, StoreDeadline deadline);  // waits for the key, returns no value
  Result<std::optional<std::string>> try_get(std::string_view key, StoreDeadline deadline);  // does not wait
  // returns true if the key exists; does not wait
  Result<bool> check(std::string_view key, StoreDeadline deadline);
  // A missing key counts as 0. Returns the new value.
  Result<int64_t> add(std::string_view key, int64_t delta, StoreDeadline deadline);
  Status append(std::string_view key, std::string_view value, StoreDeadline deadline);
  // Replaces `expected` with `desired`; an empty `expected` also matches a missing key. Returns the
  // key's value after the call, or `expected` if the key is still missing.
  Result<std::string> compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                                  StoreDeadline deadline);
  Result<bool> erase(std::string_view key, StoreDeadline deadline);  // returns true if the key existed
  // erases every key that begins with `prefix`
  Status erase_all(std::string_view prefix, StoreDeadline deadline);
  // Returns every key that begins with `prefix`, sorted.
  Result<std::vector<std::string>> keys(std::string_view prefix, StoreDeadline deadline);

  // Makes one request, after a check of the sizes. All methods above use it.
  Result<StoreAnswer> call(const StoreCall& call, StoreDeadline deadline);
  // In a forked child: closes every descriptor. No other call may follow.
  virtual void close_in_child() noexcept {}

 private:
  // Precondition: the key and the value are within their limits.
  virtual Result<StoreAnswer> run(const StoreCall& call, StoreDeadline deadline) = 0;
  Result<StoreAnswer> look(StoreOp op, std::string_view key, StoreDeadline deadline);
};

// Returns the error of a get, pop or wait that timed out. Pass `is_sure` if the store has reported
// that the key is missing.
Status key_timeout(std::string_view key, bool is_sure);

}  // namespace pc
