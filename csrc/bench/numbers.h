// Numbers in the notation of the command line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace pc::bench {

Result<uint64_t> whole_number(const std::string& text, uint64_t least, uint64_t most);
Result<uint64_t> number_of_bytes(const std::string& text);  // "8", "64K", "16M", "1G"
Result<double> seconds(const std::string& text);
std::vector<std::string> split(const std::string& text);  // at commas

}  // namespace pc::bench
