// Generates docs/dtypes.md from can_reduce(), so that the page cannot promise anything else.
#pragma once

#include <string>

namespace pc {

std::string dtypes_markdown();

}  // namespace pc
