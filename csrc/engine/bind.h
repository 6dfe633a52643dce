// Maps the chunks of a plan to memory: their positions in the arrays of a call, and the scratch
// memory behind Area::kScratch.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "engine/request.h"

namespace pc {

// The positions and sizes of the chunks in the arrays of one call, in bytes. The object is reused
// for later calls; bind() allocates nothing if all parts have the same size.
class Geometry {
 public:
  Geometry() = default;
  // `shape` and `chunks` are those of the plan, which cuts the array into `chunks` chunks.
  Geometry(const Request& request, const Shape& shape, uint32_t chunks) { bind(request, shape, chunks); }
  void bind(const Request& request, const Shape& shape, uint32_t chunks);

  std::size_t nbytes(Chunks names) const;
  std::size_t input(uint32_t name) const;   // offset in the input
  std::size_t output(uint32_t name) const;  // offset in the output
  // Returns the size of one chunk of scratch, which fits the largest chunk of the array. It is
  // rounded up to 64 bytes, except if packs(shape): then all chunks have the same size, and scratch
  // holds them without gaps.
  std::size_t chunk_nbytes() const { return chunk_nbytes_; }

 private:
  // in bytes: parts of size `equal` or, if `offsets` is not empty, parts between consecutive
  // offsets
  struct Parts {
    void bind(std::span<const uint64_t> counts, std::size_t equal, std::size_t element_nbytes);
    std::size_t begin(std::size_t part) const { return offsets.empty() ? part * equal : offsets[part]; }
    std::size_t nbytes(std::size_t part) const { return begin(part + 1) - begin(part); }
    std::size_t equal = 0;
    std::vector<std::size_t> offsets;
  };
  std::size_t position(uint32_t name) const;  // in the whole array
  void bind_pieces(std::size_t total_nbytes, uint32_t chunks);
  void bind_parts(const Request& request, const Shape& shape);
  void bind_blocks(const Request& request);

  enum class Cut : uint8_t { kPieces, kParts, kBlocks } cut_ = Cut::kPieces;
  // kPieces: `chunks` pieces of equal size, rounded up to 64 bytes; the last ones are shorter and
  // may be empty. kParts: one part per rank, each cut in the same manner into `split` pieces.
  // kBlocks (alltoall): one block for each rank in the input and one from each rank in the output.
  std::size_t total_nbytes_ = 0, chunk_nbytes_ = 0, input_begin_ = 0, output_begin_ = 0;
  uint32_t split_ = 1, rank_ = 0, size_ = 1;
  // parts_: the parts or, for kBlocks, the blocks to each rank; from_: the blocks from each rank
  Parts parts_, from_;
};

// Memory that grows and never shrinks, because a fresh allocation per call would cost more in page
// faults than the call itself. Thread-safety: none; one run at a time uses it.
class Scratch {
 public:
  // Returns at least `nbytes`, 64-byte aligned, with unspecified contents. Returns null if the
  // system has no more memory.
  std::byte* reserve(std::size_t nbytes);

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte[], Free> memory_;
  std::size_t capacity_ = 0;
};

}  // namespace pc
