// Text that is made of fields: words in the store, and rows of tables.
#pragma once

#include <charconv>
#include <string_view>
#include <system_error>
#include <vector>

namespace pc {

// The fields, empty ones too: one more than there are separators. They lie in `text`.
std::vector<std::string_view> cut(std::string_view text, char separator);

// The whole text is a number, and `number` can hold it.
template <class T>
bool number_from(std::string_view text, T& number) {
  const std::from_chars_result parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
}

}  // namespace pc
