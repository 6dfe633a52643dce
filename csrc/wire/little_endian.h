// Numbers in wire format, read and written byte by byte, so that the layout depends on neither the
// compiler's padding nor the machine's byte order. Compilers reduce each function to one load or
// store.
#pragma once

#include <cstddef>

namespace pc {

template <class T>
void put(std::byte* at, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) at[i] = static_cast<std::byte>((value >> (8 * i)) & 0xff);
}
template <class T>
T get(const std::byte* at) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i)
    value = static_cast<T>(value | static_cast<T>(static_cast<T>(at[i]) << (8 * i)));
  return value;
}

}  // namespace pc
