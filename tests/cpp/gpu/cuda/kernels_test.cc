// Kernels: looked up, loaded before they are needed, launched with their arguments, and the error
// where they do not run.
#include "gpu/cuda/kernels.h"

#include <array>
#include <cstring>

#include "gpu/cuda/fake_gpu.h"
#include "gpu/cuda/memory.h"
#include "gpu/cuda/stream.h"

namespace pc::cuda {
namespace {

constexpr std::array<std::byte, 4> kImage{};

void play_add(void** arguments,
              const FakeLaunch*) {  // void add(int* to, int amount, unsigned long long count)
  int* to = nullptr;
  int amount = 0;
  unsigned long long count = 0;
  std::memcpy(&to, arguments[0], sizeof to);
  std::memcpy(&amount, arguments[1], sizeof amount);
  std::memcpy(&count, arguments[2], sizeof count);
  for (unsigned long long i = 0; i < count; ++i) to[i] += amount;
}
FakeLaunch seen_launch{};
void play_look(void**, const FakeLaunch* launch) { seen_launch = *launch; }

class KernelsTest : public FakeGpu {
 protected:
  void SetUp() override {
    FakeGpu::SetUp();
    const std::size_t sizes[] = {sizeof(int*), sizeof(int), sizeof(unsigned long long)};
    fake.set_kernel("add", play_add, sizes, 3);
    fake.set_kernel("look", play_look, nullptr, 0);
    context.emplace(gpu());
    current.emplace(value_of(context->enter()));
  }
  void TearDown() override {
    current.reset();
    FakeGpu::TearDown();
  }
  Kernels kernels() { return value_of(Kernels::load(driver, kImage)); }
  std::optional<Context> context;
  std::optional<ContextGuard> current;
};

TEST_F(KernelsTest, get_their_arguments_as_they_were_at_the_launch) {
  const Stream stream = value_of(Stream::create(*context));
  const PinnedMemory memory = value_of(PinnedMemory::allocate(*context, 3 * sizeof(int)));
  auto* const numbers = reinterpret_cast<int*>(memory.bytes().data());
  CUfunction add = value_of(kernels().find("add"));
  fake.hold_stream(stream.get());
  int amount = 5;
  EXPECT_OK(launch(*driver, add, {1, 32}, stream.get(), numbers, amount, 3ULL));
  amount = 1000;
  EXPECT_OK(launch(*driver, add, {1, 32}, stream.get(), numbers + 1, 2, 1ULL));
  fake.release_stream(stream.get());
  fake.drain(stream.get());
  EXPECT_EQ(numbers[0], 5);
  EXPECT_EQ(numbers[1], 7);
  EXPECT_EQ(numbers[2], 5);
}

TEST_F(KernelsTest, are_launched_in_the_requested_shape) {
  CUfunction look = value_of(kernels().find("look"));
  EXPECT_OK(launch(*driver, look, {132, 512, 64}, nullptr));
  fake.drain(nullptr);
  EXPECT_EQ(seen_launch.grid[0], 132U);
  EXPECT_EQ(seen_launch.grid[1], 1U);
  EXPECT_EQ(seen_launch.block[0], 512U);
  EXPECT_EQ(seen_launch.shared_nbytes, 64U);
  EXPECT_HAS(launch(*driver, look, {1, 4096}, nullptr).message(), "cuLaunchKernel: invalid argument");
}

TEST_F(KernelsTest, are_on_the_device_before_their_first_launch) {
  (void)value_of(kernels().find("add"));
  EXPECT_EQ(fake.calls("cuFuncLoad"), 1);
}

TEST_F(KernelsTest, run_on_drivers_before_12_4_which_cannot_load_one_ahead) {
  EXPECT_NE(driver->cuFuncLoad, nullptr);
  fake.set_version(12020);
  const auto older = value_of(open_driver({FAKE_CUDA}));
  EXPECT_EQ(older->cuFuncLoad, nullptr);
  const Kernels loaded = value_of(Kernels::load(older, kImage));
  EXPECT_TRUE(loaded.find("add").is_ok());
}

TEST_F(KernelsTest, of_a_build_without_any_are_unsupported) {
  const Result<Kernels> none = Kernels::load(driver, {});
  ASSERT_FALSE(none.is_ok());
  EXPECT_EQ(none.status().code(), Code::kUnsupported);
  EXPECT_HAS(none.status().message(), "compiled without nvcc");
}

TEST_F(KernelsTest, that_the_driver_is_too_old_for_say_so_wherever_it_shows) {
  for (const int error : {int{CUDA_ERROR_UNSUPPORTED_PTX_VERSION}, int{CUDA_ERROR_NO_BINARY_FOR_GPU}}) {
    fake.fail_next("cuLibraryLoadData", error);
    const Status load = Kernels::load(driver, kImage).status();
    EXPECT_EQ(load.code(), Code::kUnsupported);
    EXPECT_HAS(load.message(), "the driver (CUDA 13.0) is too old for the built-in kernels");
    EXPECT_HAS(load.message(), "cuLibraryLoadData");
    for (const char* const call : {"cuKernelGetFunction", "cuFuncLoad"}) {
      fake.fail_next(call, error);
      EXPECT_HAS(kernels().find("add").status().message(), "too old for the built-in kernels");
    }
    CUfunction look = value_of(kernels().find("look"));
    fake.fail_next("cuLaunchKernel", error);
    EXPECT_HAS(launch(*driver, look, {}, nullptr).message(), "too old for the built-in kernels");
  }
}

TEST_F(KernelsTest, of_an_unknown_name_are_our_mistake) {
  const Result<CUfunction> missing = kernels().find("subtract");
  ASSERT_FALSE(missing.is_ok());
  EXPECT_EQ(missing.status().code(), Code::kInternal);
  EXPECT_HAS(missing.status().message(), "subtract");
}

}  // namespace
}  // namespace pc::cuda
