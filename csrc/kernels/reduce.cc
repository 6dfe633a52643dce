#include "kernels/reduce.h"

#include "kernels/kernel_table.h"

namespace pc {
namespace {

struct Targets {
  std::vector<std::string_view> names;
  std::vector<KernelTable> kernels;
};

#ifdef PYCOLLECTIVE_HAVE_HIGHWAY
KernelTable filled_up(KernelTable table, const KernelTable& portable) {
  for (std::size_t d = 0; d < table.size(); ++d) {
    for (std::size_t o = 0; o < table[d].size(); ++o) {
      if (table[d][o] == nullptr) table[d][o] = portable[d][o];
    }
  }
  return table;
}
#endif

// The targets that this build has and this machine can run, best last. Computed once.
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

}  // namespace

const KernelTable& best_kernels() {
  static const KernelTable& kBest = targets().kernels.back();
  return kBest;
}
const KernelTable* kernels_on(std::string_view target) {
  const Targets& all = targets();
  for (std::size_t i = 0; i < all.names.size(); ++i) {
    if (all.names[i] == target) return &all.kernels[i];
  }
  return nullptr;
}

bool can_reduce(DType dtype, ReduceOp op) { return kernel_of(portable_kernels(), dtype, op) != nullptr; }

void reduce(std::byte* out, const std::byte* a, const std::byte* b, std::size_t count, DType dtype,
            const Reduction& how, Weights weights) {
  kernel_of(best_kernels(), dtype, how.op)({out, a, b, count, weights, how.factor});
}

std::span<const std::string_view> reduce_targets() { return targets().names; }
std::string_view reduce_target() { return targets().names.back(); }

bool reduce_on(std::string_view target, std::byte* out, const std::byte* a, const std::byte* b,
               std::size_t count, DType dtype, const Reduction& how, Weights weights) {
  const KernelTable* const kernels = kernels_on(target);
  if (kernels != nullptr) kernel_of(*kernels, dtype, how.op)({out, a, b, count, weights, how.factor});
  return kernels != nullptr;
}

}  // namespace pc
