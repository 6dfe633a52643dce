#include "device_kernels/cpu_launch.h"

#include "kernels/device/list.h"
#include "kernels/device/loops.h"

namespace pc::device {
namespace {

struct Kernel {
  std::string_view name;
  void (*run)(const ReduceArguments&, ThisThread);
};
#define PC_KERNEL(name, ...) {"pc_" #name, &reduce<__VA_ARGS__>},
constexpr Kernel kKernels[] = {PC_ALL_REDUCE_KERNELS};
#undef PC_KERNEL

}  // namespace
}  // namespace pc::device

namespace pc {

using device::CopyArguments;
using device::ReduceArguments;

std::vector<std::string_view> reduce_kernels() {
  std::vector<std::string_view> names;
  for (const device::Kernel& kernel : device::kKernels) names.push_back(kernel.name);
  return names;
}

bool launch_on_cpu(std::string_view name, const ReduceArguments& arguments, uint64_t threads) {
  for (const device::Kernel& kernel : device::kKernels) {
    if (kernel.name != name) continue;
    for (uint64_t i = 0; i < threads; ++i) kernel.run(arguments, {i, threads});
    return true;
  }
  return false;
}

void launch_copy_on_cpu(const CopyArguments& arguments, uint64_t threads) {
  for (uint64_t i = 0; i < threads; ++i) device::copy(arguments, {i, threads});
}

}  // namespace pc
