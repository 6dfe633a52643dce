// The named implementations of kernels/copy.h, so that tests can call each of them.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace pc {

using Copy = void (*)(std::byte* to, const std::byte* from, std::size_t nbytes);

struct CopyTarget {
  std::string_view name;
  Copy copy;
  Copy past_caches;
};
// Returns the implementations that this machine can run, best last. The first is "portable".
std::span<const CopyTarget> copy_targets();

std::vector<CopyTarget> highway_copy_targets();

}  // namespace pc
