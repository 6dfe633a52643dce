#include "fake_kernels.h"

#include "kernels/device/list.h"
#include "kernels/device/loops.h"

namespace pc::device {
namespace {

struct Kernel {
  const char* name;
  FakeKernel play;
};

template <class Step>
void play(void** arguments, const FakeLaunch* /*launch*/) {
  constexpr uint64_t kThreads = 3;  // any number of threads processes the whole
  const auto& how = *static_cast<const ReduceArguments*>(arguments[0]);
  for (uint64_t i = 0; i < kThreads; ++i) reduce<Step>(how, {i, kThreads});
}

void play_copy(void** arguments, const FakeLaunch* /*launch*/) {
  copy(*static_cast<const CopyArguments*>(arguments[0]), {0, 1});
}

#define PC_KERNEL(name, ...) {"pc_" #name, &play<__VA_ARGS__>},
constexpr Kernel kKernels[] = {PC_ALL_REDUCE_KERNELS};
#undef PC_KERNEL

}  // namespace
}  // namespace pc::device

namespace pc::testing {

std::span<const std::byte> fake_kernels(const FakeCuda& fake) {
  static constexpr std::byte kImage[4] = {};
  constexpr std::size_t kArguments[] = {sizeof(device::ReduceArguments)};
  for (const device::Kernel& each : device::kKernels) fake.set_kernel(each.name, each.play, kArguments, 1);
  constexpr std::size_t kCopyArguments[] = {sizeof(device::CopyArguments)};
  fake.set_kernel("pc_copy", device::play_copy, kCopyArguments, 1);
  return kImage;
}

}  // namespace pc::testing
