#include "base/size_text.h"

#include <charconv>
#include <utility>

namespace pc {

std::optional<uint64_t> size_from(std::string_view text) {
  if (text == "inf") return kInfinity;
  uint64_t number = 0;
  const std::from_chars_result parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc()) return std::nullopt;
  const std::string_view unit(parsed.ptr, static_cast<std::size_t>(text.data() + text.size() - parsed.ptr));
  const int shift = unit.empty() ? 0 : unit == "k" ? 10 : unit == "m" ? 20 : unit == "g" ? 30 : -1;
  if (shift < 0 || number > (kInfinity >> shift)) return std::nullopt;
  return number << shift;
}

std::string size_text(uint64_t nbytes) {
  if (nbytes == kInfinity) return "inf";
  for (const auto& [shift, unit] : {std::pair{30, 'g'}, {20, 'm'}, {10, 'k'}}) {
    if (nbytes != 0 && nbytes % (uint64_t{1} << shift) == 0) return std::to_string(nbytes >> shift) + unit;
  }
  return std::to_string(nbytes);
}

}  // namespace pc
