#include "bootstrap/store_keys.h"

#include <algorithm>
#include <charconv>
#include <cstddef>

namespace pc {
namespace {

constexpr std::string_view kError = "error ";

}  // namespace

// The format is "error 3 1 what happened": the code, the peer and the message.
std::string publish(const Status& why) {
  return std::string(kError) + std::to_string(static_cast<int>(why.code())) + " " +
         std::to_string(why.peer()) + " " + why.message();
}

Status published_error(std::string_view text) {
  if (!text.starts_with(kError)) return Status::ok();
  text.remove_prefix(kError.size());
  // removes the next number and the blank after it; returns the number
  const auto take = [&text](int otherwise) {
    int number = otherwise;
    const char* const end = text.data() + text.size();
    const std::from_chars_result parsed = std::from_chars(text.data(), end, number);
    text.remove_prefix(std::min(static_cast<std::size_t>(parsed.ptr - text.data()) + 1, text.size()));
    return number;
  };
  const Code given = static_cast<Code>(take(static_cast<int>(Code::kAborted)));
  const Rank peer = take(-1);
  // These codes apply to all ranks. Any other code concerns only the rank that failed, so the other
  // ranks receive kAborted.
  const bool shared = given == Code::kMismatch || given == Code::kTimeout;
  const Status why(shared ? given : Code::kAborted, std::string(text));
  return peer < 0 ? why : why.with_peer(peer);
}

}  // namespace pc
