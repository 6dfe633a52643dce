// Sizes of memory for error messages: "64 MiB", "100 B".
#pragma once

#include <cstdint>
#include <string>

namespace pc::cuda {

inline std::string nbytes_text(uint64_t nbytes) {
  constexpr const char* kUnits[] = {" B", " KiB", " MiB", " GiB"};
  int unit = 0;
  while (unit < 3 && nbytes != 0 && nbytes % 1024 == 0) {
    nbytes /= 1024;
    ++unit;
  }
  return std::to_string(nbytes) + kUnits[unit];
}

}  // namespace pc::cuda
