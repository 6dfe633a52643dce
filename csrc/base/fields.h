// Parses text that consists of fields: values in the store, and rows of tables.
#pragma once

#include <charconv>
#include <string_view>
#include <system_error>
#include <vector>

namespace pc {

// Returns all fields, including empty ones, so there is one more field than there are separators.
// The fields are views into `text`.
std::vector<std::string_view> cut(std::string_view text, char separator);

// Parses `text` into `number`. Returns false unless the whole text is a number that fits T.
template <class T>
bool number_from(std::string_view text, T& number) {
  const std::from_chars_result parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
}

}  // namespace pc
