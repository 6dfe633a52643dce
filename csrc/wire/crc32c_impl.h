// The implementations behind wire/crc32c.h, named, so that tests can hold each against the portable one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace pc {

// Without the inversions of the public functions: `state` is the register of the polynomial division.
// `to` is where the data is copied on the way; nullptr: nowhere.
using Crc32cUpdate = uint32_t (*)(uint32_t state, std::byte* to, const std::byte* data, std::size_t nbytes);

struct Crc32cTarget {
  std::string_view name;
  Crc32cUpdate update;
};
std::span<const Crc32cTarget>
crc32c_targets();  // what this machine can run, best last; the first is "portable"

}  // namespace pc
