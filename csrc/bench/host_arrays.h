// The arrays of one row, in ordinary host memory, filled and verified.
#pragma once

#include <memory>
#include <vector>

#include "bench/collectives.h"

namespace pc::bench {

struct FreeMemory {
  void operator()(std::byte* memory) const;
};
using Memory = std::unique_ptr<std::byte, FreeMemory>;

// Returns memory that is page-aligned, like the memory of large arrays. It is zeroed, so that all
// its pages are present.
Result<Memory> allocate(std::size_t nbytes);

// Describes one rank's arrays.
struct ArrayKind {
  const Operation* operation = nullptr;
  DType dtype = DType::kF32;
  bool in_place = true;
  uint64_t part = 0;  // elements in each part
  Rank rank = 0, size = 1;
};

class HostArrays {
 public:
  static Result<HostArrays> create(const ArrayKind& kind);  // the arrays are zeros

  const Arrays& arrays() const { return arrays_; }
  Buffer memory() const { return {memory_.get(), nbytes_, DType::kU8}; }  // contains both arrays
  // fills the input with its pattern, and the output with a byte that marks unwritten elements
  void fill(const Asked& asked);
  // Returns the number of wrong elements in the output, after a call that followed fill().
  uint64_t count_wrong(const Asked& asked) const;

 private:
  explicit HostArrays(const ArrayKind& kind) : kind_(kind) {}
  Buffer part_of(const Buffer& array, Rank part) const;

  ArrayKind kind_;
  Memory memory_;
  std::size_t nbytes_ = 0;
  Arrays arrays_;
  std::vector<std::byte> before_;  // the output before the call, on a rank that has no result
};

}  // namespace pc::bench
