#include "engine/bind.h"

#include <algorithm>
#include <new>

#include "base/round_up.h"

namespace pc {
namespace {
constexpr std::size_t kPieceAlign = 64;

// Every element size divides 64, so rounding bytes never cuts an element.
std::size_t piece_of(std::size_t nbytes, std::size_t pieces) {
  if (pieces == 1) return nbytes;
  const std::size_t even = nbytes / pieces + (nbytes % pieces != 0);
  return round_up(even, kPieceAlign);
}

}  // namespace

void Geometry::Parts::bind(std::span<const uint64_t> counts, std::size_t equal_nbytes,
                           std::size_t element_nbytes) {
  equal = equal_nbytes;
  offsets.clear();
  if (counts.empty()) return;
  offsets.push_back(0);
  for (const uint64_t count : counts) offsets.push_back(offsets.back() + count * element_nbytes);
}

void Geometry::bind(const Request& request, const Shape& shape, uint32_t chunks) {
  rank_ = static_cast<uint32_t>(shape.rank);
  size_ = static_cast<uint32_t>(shape.size);
  split_ = shape.split;
  input_begin_ = output_begin_ = 0;
  if (shape.collective == Collective::kAlltoall) return bind_blocks(request);
  if (has_parts(shape.collective)) return bind_parts(request, shape);
  bind_pieces(elements_of(request, shape.size).nbytes(), chunks);
}

void Geometry::bind_pieces(std::size_t total_nbytes, uint32_t chunks) {
  cut_ = Cut::kPieces;
  total_nbytes_ = total_nbytes;
  chunk_nbytes_ = chunks == 0 ? 0 : round_up(piece_of(total_nbytes, chunks), kPieceAlign);
}

void Geometry::bind_parts(const Request& request, const Shape& shape) {
  cut_ = Cut::kParts;
  const Elements all = elements_of(request, shape.size);
  parts_.bind(request.counts, all.count / size_ * size_of(all.dtype), size_of(all.dtype));
  total_nbytes_ = all.nbytes();
  std::size_t largest = 0;
  for (std::size_t p = 0; p < (request.counts.empty() ? 1 : size_); ++p)
    largest = std::max(largest, parts_.nbytes(p));
  chunk_nbytes_ = packs(shape) ? largest : round_up(piece_of(largest, split_), kPieceAlign);
  const uint32_t chunks = size_ * split_;
  input_begin_ = position(held(shape, chunks, Area::kInput).first);
  output_begin_ = position(held(shape, chunks, Area::kOutput).first);
}

void Geometry::bind_blocks(const Request& request) {
  cut_ = Cut::kBlocks;
  const std::size_t element = size_of(request.in.dtype);
  chunk_nbytes_ = request.in.count / size_ * element;
  parts_.bind(request.counts, chunk_nbytes_, element);
  from_.bind(request.recv_counts, chunk_nbytes_, element);
}

std::size_t Geometry::position(uint32_t name) const {
  if (cut_ == Cut::kPieces) return std::min(name * chunk_nbytes_, total_nbytes_);
  const std::size_t part = name / split_, piece = name % split_;
  if (piece == 0) return parts_.begin(part);
  const std::size_t nbytes = parts_.nbytes(part);
  return parts_.begin(part) + std::min(piece * piece_of(nbytes, split_), nbytes);
}

std::size_t Geometry::nbytes(Chunks names) const {
  if (cut_ != Cut::kBlocks) return position(names.first + names.count) - position(names.first);
  if (names.count != 1) return names.count * chunk_nbytes_;  // packed into scratch, so the parts are equal
  return names.first / size_ == rank_ ? parts_.nbytes(names.first % size_)
                                      : from_.nbytes(names.first / size_);
}

std::size_t Geometry::input(uint32_t name) const {
  return cut_ == Cut::kBlocks ? parts_.begin(name % size_) : position(name) - input_begin_;
}
std::size_t Geometry::output(uint32_t name) const {
  return cut_ == Cut::kBlocks ? from_.begin(name / size_) : position(name) - output_begin_;
}

void Scratch::Free::operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{kPieceAlign}); }

std::byte* Scratch::reserve(std::size_t nbytes) {
  if (nbytes > capacity_ || !memory_) {
    memory_.reset();  // first, so that the old and the new memory never exist together
    capacity_ = 0;
    const std::size_t wanted = std::max(nbytes, kPieceAlign);
    memory_.reset(
        static_cast<std::byte*>(::operator new[](wanted, std::align_val_t{kPieceAlign}, std::nothrow)));
    if (!memory_) return nullptr;
    capacity_ = wanted;
  }
  return memory_.get();
}

}  // namespace pc
