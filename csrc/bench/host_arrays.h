// The arrays of one row, in memory as an ordinary program's are, filled and verified.
#pragma once

#include <memory>
#include <vector>

#include "bench/collectives.h"

namespace pc::bench {

struct FreeMemory {
  void operator()(std::byte* memory) const;
};
using Memory = std::unique_ptr<std::byte, FreeMemory>;

// On a page of its own, as large arrays are; zeros, all of it touched.
Result<Memory> allocate(std::size_t nbytes);

// Of one rank.
struct ArrayKind {
  const Operation* operation = nullptr;
  DType dtype = DType::kF32;
  bool in_place = true;
  uint64_t part = 0;  // elements in each part
  Rank rank = 0, size = 1;
};

class HostArrays {
 public:
  static Result<HostArrays> create(const ArrayKind& kind);  // zeros

  const Arrays& arrays() const { return arrays_; }
  Buffer memory() const { return {memory_.get(), nbytes_, DType::kU8}; }  // in which both lie
  void fill(const Asked& asked);  // the input; the output has something else
  // Elements of the output that are not as they must be, after a call that followed fill().
  uint64_t count_wrong(const Asked& asked) const;

 private:
  explicit HostArrays(const ArrayKind& kind) : kind_(kind) {}
  Buffer part_of(const Buffer& array, Rank part) const;

  ArrayKind kind_;
  Memory memory_;
  std::size_t nbytes_ = 0;
  Arrays arrays_;
  std::vector<std::byte> before_;  // the output of a rank that has no result
};

}  // namespace pc::bench
