#include "bench/numbers.h"

#include <cctype>

#include "base/fields.h"
#include "base/size_text.h"

namespace pc::bench {

Result<uint64_t> whole_number(const std::string& text, uint64_t least, uint64_t most) {
  uint64_t value = 0;
  if (number_from(text, value) && value >= least && value <= most) return value;
  return invalid_argument("'" + text + "' is not a number from " + std::to_string(least) + " to " +
                          std::to_string(most));
}

Result<uint64_t> number_of_bytes(const std::string& text) {
  constexpr uint64_t kMost = uint64_t{1} << 40;
  std::string lower;
  for (const char c : text) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const uint64_t nbytes = size_from(lower).value_or(0);
  if (nbytes > 0 && nbytes <= kMost) return nbytes;
  return invalid_argument("'" + text + "' is not a size such as 8, 64K, 16M or 1G");
}

Result<double> seconds(const std::string& text) {
  double value = 0;
  if (number_from(text, value) && value > 0 && value <= 1e9) return value;
  return invalid_argument("'" + text + "' is not a positive number of seconds");
}

std::vector<std::string> split(const std::string& text) {
  const std::vector<std::string_view> words = cut(text, ',');
  return {words.begin(), words.end()};
}

}  // namespace pc::bench
