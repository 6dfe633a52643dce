// From chunks to memory: where the chunks of a call lie, and the scratch memory behind Area::kScratch.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "engine/request.h"

namespace pc {

// Where chunks lie in the arrays of one call, in bytes. Used again and again: nothing is allocated for equal parts.
class Geometry {
 public:
  Geometry() = default;
  // Of the array that a plan of this shape and that many chunks is for.
  Geometry(const Request& request, const Shape& shape, uint32_t chunks) { bind(request, shape, chunks); }
  void bind(const Request& request, const Shape& shape, uint32_t chunks);

  std::size_t nbytes(Chunks names) const;
  std::size_t input(uint32_t name) const;   // offset in the input
  std::size_t output(uint32_t name) const;  // and in the output
  // Of scratch: as large as the largest chunk, and without gaps where all are of one size.
  std::size_t chunk_nbytes() const { return chunk_nbytes_; }

 private:
  struct Parts {  // sizes in bytes; equal, or offsets of each and the end
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
  // Pieces: `chunks` of equal size, rounded up to 64 bytes; the last ones are shorter, maybe empty. Parts: one per rank, each
  // of them cut like that into `split`. Blocks (alltoall): one for each rank in the input, one from each in the output.
  std::size_t total_nbytes_ = 0, chunk_nbytes_ = 0, input_begin_ = 0, output_begin_ = 0;
  uint32_t split_ = 1, rank_ = 0, size_ = 1;
  Parts parts_, from_;  // of blocks: to each rank, from each rank
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
