// What a message is, for a receiver that does not know: dtype and shape in the few bytes that travel in its first frame.
//
//   dtype u8, ndim u8, ndim lengths as LEB128 (DWARF 5, section 7.6), and of kOpaque its owner's name of the dtype
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/types.h"

namespace pc {

struct ArrayDescription {
  DType dtype = DType::kU8;
  std::vector<int64_t> shape;  // in items: of kOpaque, its owner's elements
  std::string layout;          // kOpaque only: the dtype's name
  uint64_t nbytes = 0;
};

// Empty: it would be longer than kMaxDescriptionBytes.
std::string describe_array(DType dtype, std::span<const int64_t> shape, const Layout* layout);
// Of a message of `nbytes`. Its sender may be hostile: not OK if it does not fit that size, or is no description.
Result<ArrayDescription> described_array(std::string_view description, uint64_t nbytes);

}  // namespace pc
