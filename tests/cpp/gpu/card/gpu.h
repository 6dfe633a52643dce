// A test that needs a GPU. Without a GPU it is skipped with the reason; with
// PYCOLLECTIVE_REQUIRE_GPU=1 it fails instead.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/env.h"
#include "gpu/cuda/context.h"
#include "gpu/cuda/copy.h"
#include "gpu/cuda/device.h"
#include "gpu/cuda/driver.h"
#include "gpu/cuda/event.h"
#include "gpu/cuda/host_wait.h"
#include "gpu/cuda/memory.h"
#include "gpu/cuda/stream.h"

namespace pc::testing {

inline bool gpu_is_required() {
  const char* const text = std::getenv("PYCOLLECTIVE_REQUIRE_GPU");  // NOLINT(concurrency-mt-unsafe)
  return text != nullptr && std::string(text) == "1";
}

#define PC_NEEDS(result)                                            \
  if (!(result).is_ok()) {                                          \
    if (gpu_is_required()) FAIL() << (result).status().to_string(); \
    GTEST_SKIP() << (result).status().to_string();                  \
  }
#define PC_MUST(status) ASSERT_TRUE((status).is_ok()) << (status).to_string()

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto driver = cuda::open_driver({env_text(Env::kCudaLib).value()});
    PC_NEEDS(driver);
    driver_ = driver.value();
    auto device = cuda::describe_device(*driver_, 0);
    ASSERT_TRUE(device.is_ok()) << device.status().to_string();
    device_ = device.value();
    auto context = cuda::Context::primary(driver_, 0);
    ASSERT_TRUE(context.is_ok()) << context.status().to_string();
    context_.emplace(std::move(context).value());
    auto current = context_->enter();
    ASSERT_TRUE(current.is_ok()) << current.status().to_string();
    current_.emplace(std::move(current).value());
    auto stream = cuda::Stream::create(*context_);
    ASSERT_TRUE(stream.is_ok()) << stream.status().to_string();
    stream_.emplace(std::move(stream).value());
  }
  void TearDown() override {
    stream_.reset();
    current_.reset();
  }

  const cuda::Driver& driver() const { return *driver_; }
  cuda::CUstream stream() const { return stream_->get(); }
  WaitContext wait_limit() const { return {Deadline::after(30)}; }

  // Allocates `nbytes` on the GPU. The array begins at `offset`.
  cuda::DeviceMemory memory(std::size_t nbytes) const {
    auto got = cuda::DeviceMemory::allocate(*context_, nbytes == 0 ? 1 : nbytes);
    EXPECT_TRUE(got.is_ok()) << got.status().to_string();
    return std::move(got).value();
  }
  // Through pageable memory, so that these copies wait.
  void put(cuda::CUdeviceptr to, std::span<const std::byte> bytes) const {
    if (bytes.empty()) return;
    PC_MUST(cuda::copy_to_device(driver(), to, bytes, stream()));
    settle(stream());
  }
  std::vector<std::byte> get(cuda::CUdeviceptr from, std::size_t nbytes) const {
    std::vector<std::byte> bytes(nbytes);
    if (nbytes != 0) {
      const Status copied = cuda::copy_to_host(driver(), bytes, from, stream());
      EXPECT_TRUE(copied.is_ok()) << copied.to_string();
      settle(stream());
    }
    return bytes;
  }
  void settle(cuda::CUstream on) const {
    const auto end =
        cuda::wait_on_host([&] { return cuda::is_done(driver(), on); }, cuda::HostWait{wait_limit()});
    ASSERT_TRUE(end.is_ok()) << end.status().to_string();
    ASSERT_EQ(end.value(), WaitEnd::kReady);
  }

  std::shared_ptr<const cuda::Driver> driver_;
  cuda::DeviceInfo device_;
  std::optional<cuda::Context> context_;
  std::optional<cuda::ContextGuard> current_;
  std::optional<cuda::Stream> stream_;
};

}  // namespace pc::testing
