// On a GPU the kernels give the bits of the CPU's kernels, for every type, operation and alignment
// of the arrays.
#include <algorithm>
#include <random>

#include "gpu/card/gpu.h"
#include "gpu/cuda/kernels.h"
#include "kernels/device/embedded.h"
#include "kernels/device/kernel_choice.h"
#include "kernels/reduce.h"
#include "kernels/same_bits.h"

namespace pc::testing {
namespace {

// An array in the GPU's memory, with other data before and after it.
struct Placed {
  Bytes before;  // the initial content of the whole memory
  cuda::DeviceMemory memory;
  std::size_t offset;
  cuda::CUdeviceptr at() const { return memory.at() + kPad + offset; }
  const std::byte* bytes() const { return before.data() + kPad + offset; }
};

class KernelsOnGpu : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!stream_) return;
    auto kernels = cuda::Kernels::load(driver_, embedded_kernels());
    PC_NEEDS(kernels);
    kernels_.emplace(std::move(kernels).value());
  }

  Placed placed(std::mt19937_64& random, std::size_t nbytes, std::size_t offset) {
    Bytes bytes(nbytes + 2 * kPad + 32);
    for (std::byte& each : bytes) each = static_cast<std::byte>(random());
    cuda::DeviceMemory on_gpu = memory(bytes.size());
    put(on_gpu.at(), bytes);
    return {std::move(bytes), std::move(on_gpu), offset};
  }
  // Checks that the array has `expected` and that the memory around it is unchanged.
  void expect_written(const Placed& array, const Bytes& expected, DType dtype, const std::string& what) {
    const Bytes after = get(array.memory.at(), array.before.size());
    const std::size_t begin = kPad + array.offset;
    Bytes framed = after;
    std::copy_n(array.before.begin() + static_cast<std::ptrdiff_t>(begin), expected.size(),
                framed.begin() + static_cast<std::ptrdiff_t>(begin));
    EXPECT_TRUE(framed == array.before) << what << ": wrote beside the array";
    expect_same(expected.data(), after.data() + begin, expected.size() / size_of(dtype), dtype, what);
  }
  template <class Arguments>
  void run(const std::string& name, const Arguments& arguments, std::size_t nbytes) {
    const auto function = kernels_->find(name);
    ASSERT_TRUE(function.is_ok()) << function.status().to_string();
    const LaunchShape shape = launch_shape(nbytes, static_cast<uint32_t>(device_.multiprocessors));
    PC_MUST(cuda::launch(driver(), function.value(), {shape.blocks, shape.threads}, stream(), arguments));
    settle(stream());
  }

  void reduce_and_compare(DType dtype, const Reduction& how, std::size_t sources, std::size_t outputs,
                          std::size_t count, std::size_t offset) {
    if (takes_pairs(how.op)) count = count / 2 * 2;
    const std::size_t nbytes = count * size_of(dtype), step = size_of(part_of(dtype));
    const std::string what = std::string(name_of(dtype)) + " " + std::string(name_of(how)) + ", " +
                             std::to_string(sources) + " sources of " + std::to_string(count) + " at " +
                             std::to_string(offset);
    std::mt19937_64 random(count + sources);
    std::vector<Placed> from, to;
    std::vector<const void*> from_at;
    std::vector<void*> to_at;
    std::vector<const std::byte*> on_cpu;
    for (std::size_t k = 0; k < sources; ++k) {
      from.push_back(placed(random, nbytes, (offset + k % 2) * step % 16));
      from_at.push_back(reinterpret_cast<const void*>(from.back().at()));
    }
    for (const Placed& each : from) on_cpu.push_back(each.bytes());
    for (std::size_t k = 0; k < outputs; ++k) {
      to.push_back(placed(random, nbytes, offset * step % 16));
      to_at.push_back(reinterpret_cast<void*>(to.back().at()));
    }
    Bytes expected(nbytes);
    reduce_all_on("portable", expected.data(), nullptr, on_cpu, count, dtype, how);
    const auto arguments = reduce_arguments({from_at, to_at, count, dtype, how});
    ASSERT_TRUE(arguments.is_ok()) << what << ": " << arguments.status().to_string();
    run(*reduce_kernel(dtype, how.op), arguments.value(), nbytes);
    for (const Placed& each : to) expect_written(each, expected, dtype, what);
  }

  std::optional<cuda::Kernels> kernels_;
};

TEST_F(KernelsOnGpu, every_type_and_operation_has_the_bits_of_the_cpu) {
  for (int d = 0; d < kDTypeCount; ++d) {
    for (int o = 0; o < kReduceOpCount; ++o) {
      const DType dtype = static_cast<DType>(d);
      const ReduceOp op = static_cast<ReduceOp>(o);
      if (!can_reduce(dtype, op)) continue;
      const Reduction how = {op, op == ReduceOp::kScaledSum ? 0.75 : 1};
      for (const std::size_t sources : {1UL, 2UL, 3UL, 8UL}) {
        reduce_and_compare(dtype, how, sources, 1, 4099, 0);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(KernelsOnGpu, any_length_and_place_and_number_of_outputs_is_right) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kU8, DType::kC128}) {
    for (const std::size_t count : {0UL, 1UL, 7UL, 8UL, 1023UL, (1UL << 20) + 3}) {
      for (const std::size_t offset : {0UL, 1UL, 3UL}) {
        reduce_and_compare(dtype, {ReduceOp::kSum}, 2, count < 4096 ? 8 : 2, count, offset);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(KernelsOnGpu, copies_have_the_bytes_of_their_source_wherever_it_lies) {
  std::mt19937_64 random(1);
  for (const std::size_t nbytes : {0UL, 1UL, 15UL, 16UL, 4097UL, (1UL << 20) + 3}) {
    for (const std::size_t offset : {0UL, 1UL, 2UL, 8UL}) {
      const Placed from = placed(random, nbytes, offset), same = placed(random, nbytes, offset);
      const Placed other = placed(random, nbytes, (offset + 5) % 16);
      std::vector<void*> to = {reinterpret_cast<void*>(same.at()), reinterpret_cast<void*>(other.at())};
      const auto arguments = copy_arguments(to, reinterpret_cast<const void*>(from.at()), nbytes);
      ASSERT_TRUE(arguments.is_ok()) << arguments.status().to_string();
      run(kCopyKernel, arguments.value(), nbytes);
      const Bytes expected(from.bytes(), from.bytes() + nbytes);
      const std::string what = std::to_string(nbytes) + " bytes at " + std::to_string(offset);
      expect_written(same, expected, DType::kU8, what);
      expect_written(other, expected, DType::kU8, what + ", elsewhere");
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace pc::testing
