// Units for numbers of bytes.
#pragma once

#include <cstddef>

namespace pc {

inline constexpr std::size_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;

}  // namespace pc
