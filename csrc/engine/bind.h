// From chunks to memory: how `count` elements are cut, and the scratch memory behind Area::kScratch.
#pragma once

#include <cstddef>
#include <memory>

#include "plan/plan.h"

namespace pc {

struct ByteRange {
  std::size_t offset = 0, nbytes = 0;
};

// `count` elements in `chunks` chunks of equal size, rounded up to 64 bytes; the last ones are shorter, maybe empty.
// Scratch chunks are as large as the largest.
class Geometry {
 public:
  Geometry() = default;
  Geometry(std::size_t count, std::size_t element_nbytes, uint32_t chunks);
  ByteRange of(Chunks chunks) const;  // in input and output
  std::size_t chunk_nbytes() const { return chunk_nbytes_; }

 private:
  std::size_t total_nbytes_ = 0, chunk_nbytes_ = 0;
};

// Memory that grows and never shrinks: a fresh allocation per call costs more page faults than the call itself.
// Thread-safety: none; one run at a time.
class Scratch {
 public:
  // 64-byte aligned, at least `nbytes`, contents unspecified. nullptr: the system has no more memory.
  std::byte* reserve(std::size_t nbytes);

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte[], Free> memory_;
  std::size_t capacity_ = 0;
};

}  // namespace pc
