// How many bytes one connection moves in one call of poll().
#pragma once

#include <cstddef>

namespace pc {

// keeps one connection from starving the other connections
inline constexpr std::size_t kBudgetBytes = 512UL * 1024;

}  // namespace pc
