// Tables with one row for each value of an enumeration, indexed by the value's number.
#pragma once

#include <cstddef>

namespace pc {

// Returns true if the row at each index names the value with that number. For a static_assert
// beside the table.
template <class Table, class Row, class Value>
constexpr bool in_enum_order(const Table& table, Value Row::*value) {
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (static_cast<std::size_t>(table[i].*value) != i) return false;
  }
  return true;
}

}  // namespace pc
