// What every store refuses, in the same words.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "store/store.h"

namespace pc {

inline Status check_key(std::string_view key) {
  if (!key.empty() && key.size() <= kMaxKeyBytes) return Status::ok();
  return Status(Code::kInvalidArgument, "store key of " + std::to_string(key.size()) + " bytes: 1 to " +
                                            std::to_string(kMaxKeyBytes) + " are allowed");
}

inline Status check_entry(std::string_view key, std::string_view value) {
  PC_TRY(check_key(key));
  if (value.size() <= kMaxValueBytes) return Status::ok();
  return Status(Code::kInvalidArgument, "store value of " + std::to_string(value.size()) +
                                            " bytes for key '" + std::string(key) + "': at most " +
                                            std::to_string(kMaxValueBytes) + " are allowed");
}

inline Status key_timeout(std::string_view key) {
  return Status(Code::kTimeout, "timed out waiting for store key '" + std::string(key) +
                                    "': nobody has set it, or the store does not answer");
}

// What add() makes of a stored value: text, so that get() of a counter is readable. No value counts as 0.
inline Result<int64_t> added(std::string_view key, std::optional<std::string_view> stored, int64_t delta) {
  int64_t number = 0;
  if (stored) {
    const char* const end = stored->data() + stored->size();
    const std::from_chars_result parsed = std::from_chars(stored->data(), end, number);
    if (parsed.ec != std::errc() || parsed.ptr != end) {
      return Status(Code::kInvalidArgument, "store key '" + std::string(key) + "' holds no number to add to");
    }
  }
  int64_t sum = 0;
  if (__builtin_add_overflow(number, delta, &sum)) {
    return Status(Code::kInvalidArgument, "store key '" + std::string(key) + "': the sum overflows 64 bits");
  }
  return sum;
}

}  // namespace pc
