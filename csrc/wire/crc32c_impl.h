// The implementations behind wire/crc32c.h, by name, so that tests can compare each with the
// portable one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace pc {

// `state` is the register of the polynomial division, without the inversions of the public
// functions. `to` receives a copy of the data; if it is null, nothing is copied.
using Crc32cUpdate = uint32_t (*)(uint32_t state, std::byte* to, const std::byte* data, std::size_t nbytes);

struct Crc32cTarget {
  std::string_view name;
  Crc32cUpdate update;
};
std::span<const Crc32cTarget>
crc32c_targets();  // those that this machine can run, best last; the first is "portable"

}  // namespace pc
