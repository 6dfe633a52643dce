#include "store/values.h"

#include <charconv>

#include "store/key_list.h"

namespace pc {
namespace {

constexpr std::size_t kPageBytes = 1UL << 20;  // a page of listed keys ends after this many bytes

// Returns the stored number plus `delta`. The number is stored as text, so that get() of a counter
// is readable; a missing value counts as 0.
Result<int64_t> sum_of(std::string_view key, const std::string* stored, int64_t delta) {
  int64_t number = 0;
  if (stored != nullptr) {
    const char* const end = stored->data() + stored->size();
    const std::from_chars_result parsed = std::from_chars(stored->data(), end, number);
    if (parsed.ec != std::errc() || parsed.ptr != end)
      return invalid_argument("store key '" + std::string(key) + "' holds no number to add to");
  }
  int64_t sum = 0;
  if (__builtin_add_overflow(number, delta, &sum))
    return invalid_argument("store key '" + std::string(key) + "': the sum overflows 64 bits");
  return sum;
}

}  // namespace

Result<StoreAnswer> StoreValues::run(const StoreCall& call) {
  const std::string* const stored = find(call.key);
  switch (call.op) {
    case StoreOp::kSet: PC_TRY(put(call.key, call.value)); return StoreAnswer{};
    case StoreOp::kGet: return stored != nullptr ? StoreAnswer{*stored, 0} : StoreAnswer{{}, kMissing};
    case StoreOp::kWait: return StoreAnswer{{}, stored != nullptr ? 0 : kMissing};
    case StoreOp::kPop: {
      if (stored == nullptr) return StoreAnswer{{}, kMissing};
      StoreAnswer answer{*stored, 0};
      erase(call.key);
      return answer;
    }
    case StoreOp::kAdd: return add(call.key, call.number);
    case StoreOp::kErase: return StoreAnswer{{}, erase(call.key) ? 1 : 0};
    case StoreOp::kEraseAll: erase_all(call.key); return StoreAnswer{};
    case StoreOp::kKeys: return keys(call.key, call.value);
    case StoreOp::kCompareSet: return compare_set(call);
    case StoreOp::kAppend: PC_TRY(append(call.key, call.value)); return StoreAnswer{};
  }
  return Status(Code::kInternal, "unknown store operation");
}

const std::string* StoreValues::find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

bool StoreValues::erase(std::string_view key) {
  const auto found = values_.find(key);
  if (found == values_.end()) return false;
  nbytes_ -= found->first.size() + found->second.size();
  values_.erase(found);
  return true;
}

void StoreValues::erase_all(std::string_view prefix) {
  for (auto at = values_.lower_bound(prefix); at != values_.end() && at->first.starts_with(prefix);) {
    nbytes_ -= at->first.size() + at->second.size();
    at = values_.erase(at);
  }
}

Status StoreValues::put(std::string_view key, std::string_view value) {
  const auto found = values_.find(key);
  const bool is_new = found == values_.end();
  const std::size_t after =
      nbytes_ + value.size() + (is_new ? key.size() : 0) - (is_new ? 0 : found->second.size());
  if ((is_new && values_.size() >= limits_.keys) || after > limits_.total_nbytes) {
    return unsupported("the store is full: " + std::to_string(values_.size()) + " keys, " +
                       std::to_string(nbytes_) + " bytes; it is meant for addresses, not for data");
  }
  nbytes_ = after;
  if (is_new) {
    values_.emplace(key, value);
  } else {
    found->second = value;
  }
  return Status::ok();
}

Result<StoreAnswer> StoreValues::add(std::string_view key, int64_t delta) {
  PC_ASSIGN_OR_RETURN(const int64_t sum, sum_of(key, find(key), delta));
  PC_TRY(put(key, std::to_string(sum)));
  return StoreAnswer{{}, sum};
}

Status StoreValues::append(std::string_view key, std::string_view value) {
  const std::string* const stored = find(key);
  const std::size_t nbytes = value.size() + (stored != nullptr ? stored->size() : 0);
  if (nbytes > kMaxValueBytes)
    return invalid_argument("store value of " + std::to_string(nbytes) + " bytes for key '" +
                            std::string(key) + "': at most " + std::to_string(kMaxValueBytes) +
                            " are allowed");
  return put(key, stored != nullptr ? std::string(*stored).append(value) : std::string(value));
}

Result<StoreAnswer> StoreValues::compare_set(const StoreCall& call) {
  const auto expected = call.value.substr(0, static_cast<std::size_t>(call.number));
  const auto desired = call.value.substr(expected.size());
  const std::string* const stored = find(call.key);
  const bool may_set = stored != nullptr ? *stored == expected : expected.empty();
  if (!may_set) return StoreAnswer{stored != nullptr ? *stored : std::string(expected), 0};
  PC_TRY(put(call.key, desired));
  return StoreAnswer{std::string(desired), 0};
}

// Returns the part after `prefix` of each key that begins with `prefix`. The list starts after the
// key `prefix` + `after`. The answer's number is 1 if there are more keys.
StoreAnswer StoreValues::keys(std::string_view prefix, std::string_view after) const {
  StoreAnswer page;
  auto at =
      after.empty() ? values_.lower_bound(prefix) : values_.upper_bound(std::string(prefix).append(after));
  for (; at != values_.end() && at->first.starts_with(prefix); ++at) {
    if (page.value.size() >= kPageBytes) {
      page.number = 1;
      break;
    }
    append_key(page.value, std::string_view(at->first).substr(prefix.size()));
  }
  return page;
}

}  // namespace pc
