#include "kernels/reduce.h"

#include "kernels/kernel_table.h"

namespace pc {
namespace {

struct Targets {
  std::vector<std::string_view> names;
  std::vector<const KernelTable*> kernels;
};

// What this build has and this machine can run, best last. Found once.
const Targets& targets() {
  static const Targets kFound = [] {
    Targets found{{"portable"}, {&portable_kernels()}};
#ifdef PYCOLLECTIVE_HAVE_HIGHWAY
    for (const KernelTarget& target : highway_targets()) {
      found.names.push_back(target.name);
      found.kernels.push_back(target.kernels);
    }
#endif
    return found;
  }();
  return kFound;
}

Kernel kernel_of(const KernelTable& table, DType dtype, ReduceOp op) {
  return table[static_cast<std::size_t>(dtype)][static_cast<std::size_t>(op)];
}

}  // namespace

bool can_reduce(DType dtype, ReduceOp op) { return kernel_of(portable_kernels(), dtype, op) != nullptr; }

void reduce(std::byte* out, const std::byte* a, const std::byte* b, std::size_t count, DType dtype,
            ReduceOp op, Weights weights) {
  static const KernelTable& kBest = *targets().kernels.back();
  kernel_of(kBest, dtype, op)({out, a, b, count, weights});
}

std::span<const std::string_view> reduce_targets() { return targets().names; }
std::string_view reduce_target() { return targets().names.back(); }

bool reduce_on(std::string_view target, std::byte* out, const std::byte* a, const std::byte* b,
               std::size_t count, DType dtype, ReduceOp op, Weights weights) {
  const Targets& all = targets();
  for (std::size_t i = 0; i < all.names.size(); ++i) {
    if (all.names[i] != target) continue;
    kernel_of(*all.kernels[i], dtype, op)({out, a, b, count, weights});
    return true;
  }
  return false;
}

}  // namespace pc
