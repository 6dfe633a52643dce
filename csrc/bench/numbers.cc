#include "bench/numbers.h"

#include <cctype>
#include <charconv>
#include <string_view>

namespace pc::bench {
namespace {

template <class T>
bool parsed(std::string_view text, T& value) {
  const std::from_chars_result read = std::from_chars(text.data(), text.data() + text.size(), value);
  return read.ec == std::errc() && read.ptr == text.data() + text.size();
}

}  // namespace

Result<uint64_t> whole_number(const std::string& text, uint64_t least, uint64_t most) {
  uint64_t value = 0;
  if (parsed(text, value) && value >= least && value <= most) return value;
  return invalid_argument("'" + text + "' is not a number from " + std::to_string(least) + " to " +
                          std::to_string(most));
}

Result<uint64_t> number_of_bytes(const std::string& text) {
  constexpr std::string_view kUnits = "KMG";
  constexpr uint64_t kMost = uint64_t{1} << 40;
  std::string_view digits = text;
  std::size_t unit = std::string_view::npos;
  if (!digits.empty())
    unit = kUnits.find(static_cast<char>(std::toupper(static_cast<unsigned char>(digits.back()))));
  if (unit != std::string_view::npos) digits.remove_suffix(1);
  const uint64_t factor = unit == std::string_view::npos ? 1 : uint64_t{1} << (10 * (unit + 1));
  uint64_t value = 0;
  if (parsed(digits, value) && value > 0 && value <= kMost / factor) return value * factor;
  return invalid_argument("'" + text + "' is not a size such as 8, 64K, 16M or 1G");
}

Result<double> seconds(const std::string& text) {
  double value = 0;
  if (parsed(text, value) && value > 0 && value <= 1e9) return value;
  return invalid_argument("'" + text + "' is not a positive number of seconds");
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (c == ',') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

}  // namespace pc::bench
