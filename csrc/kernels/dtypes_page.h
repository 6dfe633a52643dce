// docs/dtypes.md, written from what can_reduce() says, so that the page cannot promise anything else.
#pragma once

#include <string>

namespace pc {

std::string dtypes_markdown();

}  // namespace pc
