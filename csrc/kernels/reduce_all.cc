// Reduces any number of sources with the kernels for two sources, block by block: every byte of a
// source is read once, and the intermediate result stays in the L1 cache.
#include <algorithm>
#include <array>

#include "kernels/copy.h"
#include "kernels/kernel_table.h"

namespace pc {
namespace {

constexpr std::size_t kBlockBytes = 2048;

// The destinations of a result. also_at(at) is the address of byte `at` of the second destination.
struct Destinations {
  std::byte* out;
  std::byte* also;
  std::byte* also_at(std::size_t at) const { return also == nullptr ? nullptr : also + at; }
};
// If only `also` is set, it becomes the first destination.
Destinations wanted(std::byte* out, std::byte* also) {
  return out == nullptr ? Destinations{also, nullptr} : Destinations{out, also};
}

bool tells_truth(DType dtype, ReduceOp op) {
  return dtype == DType::kBool || op == ReduceOp::kLAnd || op == ReduceOp::kLOr || op == ReduceOp::kLXor;
}
bool is_complex(DType dtype) { return dtype == DType::kC64 || dtype == DType::kC128; }

// Scales a single source with the kernel for two sources. The second source is -0: adding it
// changes nothing, not even the sign of a zero. So a single rank rounds as several ranks do.
void scale(const KernelTable& kernels, const Destinations& to, const std::byte* in, std::size_t count,
           DType dtype, double factor) {
  const std::size_t width = size_of(dtype), part = is_complex(dtype) ? width / 2 : width;
  const Kernel kernel = kernel_of(kernels, dtype, ReduceOp::kScaledSum);
  std::array<std::byte, kBlockBytes> zeros{};
  const std::size_t block = zeros.size() / width, most = std::min(block, count) * width;
  for (std::size_t i = part - 1; i < most; i += part) zeros[i] = std::byte{0x80};
  for (std::size_t done = 0; done < count; done += block) {
    const std::size_t n = std::min(block, count - done), at = done * width;
    kernel({to.out + at, in + at, zeros.data(), n, {1, 2, 3}, factor, to.also_at(at)});
  }
}

void copy_to_both(const Destinations& to, const std::byte* in, std::size_t nbytes) {
  const std::size_t block = to.also == nullptr ? nbytes : kBlockBytes;
  for (std::size_t at = 0; at < nbytes; at += block) {
    const std::size_t n = std::min(block, nbytes - at);
    if (to.out != in) copy(to.out + at, in + at, n);
    if (to.also != nullptr) copy(to.also + at, in + at, n);
  }
}

void alone(const KernelTable& kernels, const Destinations& to, const std::byte* in, std::size_t count,
           DType dtype, const Reduction& how) {
  if (how.op == ReduceOp::kScaledSum) return scale(kernels, to, in, count, dtype, how.factor);
  if (!tells_truth(dtype, how.op)) return copy_to_both(to, in, count * size_of(dtype));
  kernel_of(kernels, dtype, ReduceOp::kLOr)({to.out, in, in, count, {}, how.factor, to.also});
}

// Reduces two or more sources. out may be any source: no byte of it is written before all sources
// have been read up to that byte.
void chain(const KernelTable& kernels, const Destinations& to, std::span<const std::byte* const> from,
           std::size_t count, DType dtype, const Reduction& how) {
  alignas(64) std::array<std::byte, kBlockBytes> held;  // the intermediate result
  const Kernel kernel = kernel_of(kernels, dtype, how.op);
  const std::size_t width = size_of(dtype), block = from.size() == 2 ? count : held.size() / width;
  const uint32_t last = static_cast<uint32_t>(from.size()) - 1;
  for (std::size_t done = 0; done < count; done += block) {
    const std::size_t n = std::min(block, count - done), at = done * width;
    const std::byte* so_far = from[0] + at;
    for (uint32_t k = 1; k < last; ++k) {
      kernel({held.data(), so_far, from[k] + at, n, {k, 1, last + 1}, how.factor});
      so_far = held.data();
    }
    kernel({to.out + at, so_far, from[last] + at, n, {last, 1, last + 1}, how.factor, to.also_at(at)});
  }
}

void all(const KernelTable& kernels, const Destinations& to, std::span<const std::byte* const> from,
         std::size_t count, DType dtype, const Reduction& how) {
  if (count == 0 || to.out == nullptr) return;
  if (from.size() == 1) return alone(kernels, to, from[0], count, dtype, how);
  chain(kernels, to, from, count, dtype, how);
}

}  // namespace

void reduce_alone(std::byte* out, const std::byte* in, std::size_t count, DType dtype, const Reduction& how) {
  if (count != 0) alone(best_kernels(), {out, nullptr}, in, count, dtype, how);
}

void reduce_all(std::byte* out, std::byte* also, std::span<const std::byte* const> from, std::size_t count,
                DType dtype, const Reduction& how) {
  all(best_kernels(), wanted(out, also), from, count, dtype, how);
}

bool reduce_all_on(std::string_view target, std::byte* out, std::byte* also,
                   std::span<const std::byte* const> from, std::size_t count, DType dtype,
                   const Reduction& how) {
  const KernelTable* const kernels = kernels_on(target);
  if (kernels != nullptr) all(*kernels, wanted(out, also), from, count, dtype, how);
  return kernels != nullptr;
}

}  // namespace pc
