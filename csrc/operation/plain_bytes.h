// Converts plain data to the bytes of a call or a message. All ranks must use the same version of
// this library.
#pragma once

#include <cstddef>
#include <type_traits>

#include "base/types.h"

namespace pc {

template <class T>
ConstBuffer bytes_of(const T& value, std::size_t number = 1) {
  static_assert(std::is_trivially_copyable_v<T>);
  return {reinterpret_cast<const std::byte*>(&value), sizeof(T) * number, DType::kU8};
}
template <class T>
Buffer buffer_of(T& value, std::size_t number = 1) {
  static_assert(std::is_trivially_copyable_v<T>);
  return {reinterpret_cast<std::byte*>(&value), sizeof(T) * number, DType::kU8};
}

}  // namespace pc
