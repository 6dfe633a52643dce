// How much one connection moves in one go.
#pragma once

#include <cstddef>

namespace pc {

inline constexpr std::size_t kBudgetBytes = 512UL * 1024;  // so that no connection starves the others

}  // namespace pc
