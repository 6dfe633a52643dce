// The description of a message for a receiver that does not know its type: dtype and shape, in a
// few bytes of the message's first frame.
//
//   dtype u8, ndim u8, ndim lengths as LEB128 (DWARF 5, section 7.6),
//   and for kOpaque the name that the array's framework gives the dtype
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
  std::vector<int64_t> shape;  // number of elements per axis; for kOpaque, elements of the framework's dtype
  std::string layout;          // kOpaque only: the dtype's name
  uint64_t nbytes = 0;
};

// Returns an empty text if the description would be longer than kMaxDescriptionBytes.
std::string describe_array(DType dtype, std::span<const int64_t> shape, const Layout* layout);
// Parses the description of a message of `nbytes`. The sender may be hostile: returns an error if
// the description is malformed or does not match that size.
Result<ArrayDescription> described_array(std::string_view description, uint64_t nbytes);

}  // namespace pc
