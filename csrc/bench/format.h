// Formats text with printf patterns, which nccl-tests uses for its table.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

namespace pc::bench {

template <class... Values>
std::string format(const char* pattern, Values... values) {
  const int length = std::snprintf(nullptr, 0, pattern, values...);
  std::string text(static_cast<std::size_t>(length), '\0');
  std::snprintf(text.data(), text.size() + 1, pattern, values...);
  return text;
}

inline std::string or_else(const std::optional<uint64_t>& number, const char* none) {
  return number ? std::to_string(*number) : none;
}

}  // namespace pc::bench
