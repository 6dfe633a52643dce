// The flags that go with --device cuda, and those of nccl-tests that have no meaning here.
#pragma once

#include <span>
#include <string_view>

#include "bench/flags.h"

namespace pc::bench {

std::span<const Flag> gpu_flags();

struct RefusedFlag {
  std::string_view brief, name, why;
};
std::span<const RefusedFlag> refused_flags();

}  // namespace pc::bench
