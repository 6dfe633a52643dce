// The implementations behind kernels/copy.h, named, so that tests can ask each.
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
std::span<const CopyTarget> copy_targets();  // what this machine can run, best last; the first is "portable"

std::vector<CopyTarget> highway_copy_targets();

}  // namespace pc
