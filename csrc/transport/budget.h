// How many bytes one connection moves in one call of poll().
#pragma once

#include <cstddef>

namespace pc {

inline constexpr std::size_t kBudgetBytes = 512UL * 1024;  // keeps one connection from starving the rest

}  // namespace pc
