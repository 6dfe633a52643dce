// Rounds sizes and offsets up to a multiple.
#pragma once

#include <cstddef>

namespace pc {

constexpr std::size_t round_up(std::size_t nbytes, std::size_t multiple) {
  return (nbytes + multiple - 1) / multiple * multiple;
}

}  // namespace pc
