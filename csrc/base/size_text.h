// Sizes in the notation of tables and profiles: "65536", "64k", "1m", "2g", "inf".
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace pc {

inline constexpr uint64_t kInfinity = std::numeric_limits<uint64_t>::max();  // "inf"

std::optional<uint64_t> size_from(std::string_view text);
std::string size_text(uint64_t nbytes);

}  // namespace pc
