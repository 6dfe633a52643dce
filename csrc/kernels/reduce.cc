#include "kernels/reduce.h"

#include <algorithm>
#include <cstring>

#include "kernels/kernel_table.h"

namespace pc {
namespace {

struct Targets {
  std::vector<std::string_view> names;
  std::vector<KernelTable> kernels;
};

KernelTable filled_up(KernelTable table, const KernelTable& portable) {
  for (std::size_t d = 0; d < table.size(); ++d) {
    for (std::size_t o = 0; o < table[d].size(); ++o) {
      if (table[d][o] == nullptr) table[d][o] = portable[d][o];
    }
  }
  return table;
}

// What this build has and this machine can run, best last. Found once.
const Targets& targets() {
  static const Targets kFound = [] {
    Targets found{{"portable"}, {portable_kernels()}};
#ifdef PYCOLLECTIVE_HAVE_HIGHWAY
    for (const KernelTarget& target : highway_targets()) {
      found.names.push_back(target.name);
      found.kernels.push_back(filled_up(*target.kernels, portable_kernels()));
    }
#endif
    return found;
  }();
  return kFound;
}

Kernel kernel_of(const KernelTable& table, DType dtype, ReduceOp op) {
  return table[static_cast<std::size_t>(dtype)][static_cast<std::size_t>(op)];
}

bool tells_truth(ReduceOp op) {
  return op == ReduceOp::kLAnd || op == ReduceOp::kLOr || op == ReduceOp::kLXor;
}
bool is_complex(DType dtype) { return dtype == DType::kC64 || dtype == DType::kC128; }

// The kernel adds -0, which changes nothing, not even the sign of a zero: so one rank rounds as many do.
void scale(std::byte* out, const std::byte* in, std::size_t count, DType dtype, double factor) {
  constexpr std::size_t kBlock = 1024;
  const std::size_t width = size_of(dtype), part = is_complex(dtype) ? width / 2 : width;
  std::array<std::byte, 16 * kBlock> zeros{};
  for (std::size_t i = part - 1; i < kBlock * width; i += part) zeros[i] = std::byte{0x80};
  for (std::size_t done = 0; done < count; done += kBlock) {
    const std::size_t n = std::min(kBlock, count - done);
    reduce(out + done * width, in + done * width, zeros.data(), n, dtype, {ReduceOp::kScaledSum, factor},
           {1, 2, 3});
  }
}

}  // namespace

bool can_reduce(DType dtype, ReduceOp op) { return kernel_of(portable_kernels(), dtype, op) != nullptr; }

void reduce(std::byte* out, const std::byte* a, const std::byte* b, std::size_t count, DType dtype,
            const Reduction& how, Weights weights) {
  static const KernelTable& kBest = targets().kernels.back();
  kernel_of(kBest, dtype, how.op)({out, a, b, count, weights, how.factor});
}

void reduce_alone(std::byte* out, const std::byte* in, std::size_t count, DType dtype, const Reduction& how) {
  if (count == 0) return;
  if (how.op == ReduceOp::kScaledSum) return scale(out, in, count, dtype, how.factor);
  if (dtype == DType::kBool || tells_truth(how.op)) return reduce(out, in, in, count, dtype, ReduceOp::kLOr);
  if (out != in) std::memcpy(out, in, count * size_of(dtype));
}

std::span<const std::string_view> reduce_targets() { return targets().names; }
std::string_view reduce_target() { return targets().names.back(); }

bool reduce_on(std::string_view target, std::byte* out, const std::byte* a, const std::byte* b,
               std::size_t count, DType dtype, const Reduction& how, Weights weights) {
  const Targets& all = targets();
  for (std::size_t i = 0; i < all.names.size(); ++i) {
    if (all.names[i] != target) continue;
    kernel_of(all.kernels[i], dtype, how.op)({out, a, b, count, weights, how.factor});
    return true;
  }
  return false;
}

}  // namespace pc
