#include "bench/patterns.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace pc::bench {
namespace {

constexpr uint64_t kPeriod = 1021;  // elements
// The maximum number of ranks that contribute to one element of a sum and of a product. Sums stay
// below 256, up to which bfloat16 represents every integer; products stay below 2^7.
constexpr Rank kMostSummands = 51, kMostFactors = 6;
constexpr uint64_t kLargestSummand = 5, kLargestMark = 100;

uint64_t scrambled(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15 + b * 0xd1b54a32d192ed03;
  x = (x ^ (x >> 32)) * 0xbf58476d1ce4e5b9;
  return x ^ (x >> 29);
}

uint64_t scrambled(Rank rank, uint64_t i) { return scrambled(i % kPeriod, static_cast<uint64_t>(rank)); }

// Returns true if `rank` contributes to element i. At most `most` ranks contribute to an element,
// and different ranks to the next element.
bool takes_part(Rank rank, Rank size, uint64_t i, Rank most) {
  const uint64_t every = static_cast<uint64_t>((size + most - 1) / most);
  return (static_cast<uint64_t>(rank) + i % kPeriod) % every == 0;
}

// The 16-bit types keep a running mean, so the mean over every subset of the ranks must be exact:
// one rank contributes a multiple of all numbers up to `size`, and the other ranks contribute 0. In
// large worlds such a multiple has too many digits, so there all ranks contribute the same number.
double mean_input(Rank rank, Rank size, uint64_t i) {
  constexpr std::array<uint64_t, 9> kMultiple = {0, 1, 2, 6, 12, 60, 60, 420, 840};  // indexed by size
  const std::size_t n = static_cast<std::size_t>(size);
  if (n >= kMultiple.size()) return mark(0, i);
  if (i % kPeriod % n != static_cast<uint64_t>(rank)) return 0;
  return static_cast<double>(kMultiple[n] << (scrambled(0, i) % 3));
}

template <class T>
void put(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

// Stores a whole number of at least 0, exactly if the type can hold it. bool stores only whether
// the number is odd. The 8-bit floats and kOpaque, which are only moved, store the number as their
// bits.
void encode(DType dtype, double value, std::byte* to) {
  const uint64_t whole = static_cast<uint64_t>(value);
  const float single = static_cast<float>(value);
  const uint32_t bits = std::bit_cast<uint32_t>(single);
  constexpr uint32_t kRebias = (127 - 15) << 10;
  switch (dtype) {
    case DType::kBool: return put(to, static_cast<uint8_t>(whole % 2));
    case DType::kU8:
    case DType::kI8:
    case DType::kF8E4M3FN:
    case DType::kF8E5M2:
    case DType::kOpaque: return put(to, static_cast<uint8_t>(whole));
    case DType::kU16:
    case DType::kI16: return put(to, static_cast<uint16_t>(whole));
    case DType::kU32:
    case DType::kI32: return put(to, static_cast<uint32_t>(whole));
    case DType::kU64:
    case DType::kI64: return put(to, whole);
    case DType::kF16: return put(to, static_cast<uint16_t>(whole == 0 ? 0 : (bits >> 13) - kRebias));
    case DType::kBF16: return put(to, static_cast<uint16_t>(bits >> 16));
    case DType::kF32: return put(to, single);
    case DType::kF64: return put(to, value);
    case DType::kC64: return put(to, std::array<float, 2>{single, 0});
    case DType::kC128: return put(to, std::array<double, 2>{value, 0});
  }
}

}  // namespace

double mark(Rank rank, uint64_t i) { return static_cast<double>(1 + scrambled(rank, i) % kLargestMark); }

bool has_pattern(ReduceOp op) { return op <= ReduceOp::kAvg; }
bool has_pattern(DType dtype) {
  return dtype != DType::kBool && dtype != DType::kF8E4M3FN && dtype != DType::kF8E5M2;
}

double contribution(ReduceOp op, Rank rank, Rank size, uint64_t i) {
  switch (op) {
    case ReduceOp::kSum:
      if (!takes_part(rank, size, i, kMostSummands)) return 0;
      return static_cast<double>(1 + scrambled(rank, i) % kLargestSummand);
    case ReduceOp::kProd:
      return takes_part(rank, size, i, kMostFactors) ? static_cast<double>(1 + scrambled(rank, i) % 2) : 1;
    case ReduceOp::kMin:
    case ReduceOp::kMax: return mark(rank, i);
    case ReduceOp::kAvg: return mean_input(rank, size, i);
    default: return 0;  // no pattern exists
  }
}

double reduced_until(ReduceOp op, Rank end, Rank size, uint64_t i) {
  double all = contribution(op, 0, size, i);
  for (Rank rank = 1; rank < end; ++rank) {
    const double one = contribution(op, rank, size, i);
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAvg: all += one; break;
      case ReduceOp::kProd: all *= one; break;
      case ReduceOp::kMin: all = std::min(all, one); break;
      case ReduceOp::kMax: all = std::max(all, one); break;
      default: break;
    }
  }
  return all;
}

double reduced(ReduceOp op, Rank size, uint64_t i) {
  const double all = reduced_until(op, size, size, i);
  return op == ReduceOp::kAvg ? all / size : all;
}

Pattern::Pattern(DType dtype, const std::function<double(uint64_t)>& element)
    : width_(size_of(dtype)),
      period_(kPeriod * width_) {
  for (uint64_t i = 0; i < kPeriod; ++i) encode(dtype, element(i), period_.data() + i * width_);
}

void Pattern::fill(Buffer data) const {
  for (std::size_t done = 0; done < data.nbytes(); done += period_.size())
    std::memcpy(data.data + done, period_.data(), std::min(period_.size(), data.nbytes() - done));
}

uint64_t Pattern::count_wrong(ConstBuffer data) const {
  uint64_t wrong = 0;
  for (std::size_t done = 0; done < data.nbytes(); done += period_.size()) {
    const std::size_t length = std::min(period_.size(), data.nbytes() - done);
    const std::byte* const found = data.data + done;
    if (std::memcmp(found, period_.data(), length) == 0) continue;
    for (std::size_t at = 0; at < length; at += width_)
      wrong += std::memcmp(found + at, period_.data() + at, width_) == 0 ? 0 : 1;
  }
  return wrong;
}

}  // namespace pc::bench
