// A check of tables that have one row for each value of an enumeration, indexed by the value's
// number.
#pragma once

#include <cstddef>

namespace pc {

// Returns true if, for each i, row i of the table names the enumeration value i. It is used in a
// static_assert beside the table.
template <class Table, class Row, class Value>
constexpr bool in_enum_order(const Table& table, Value Row::*value) {
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (static_cast<std::size_t>(table[i].*value) != i) return false;
  }
  return true;
}

}  // namespace pc
