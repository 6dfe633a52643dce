// A world of ranks, each with a GPU of its own: FAKES of the driver and of NCCL.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fakes/cuda/fake_cuda.h"
#include "gpu/cuda/memory.h"
#include "gpu/cuda/stream.h"
#include "gpu/device_calls.h"
#include "gpu/nccl/fake_library.h"
#include "operation/async_work.h"
#include "world.h"

namespace pc::testing {

inline constexpr std::size_t kCount = 1000;

class DeviceWorld : public ::testing::TestWithParam<Over> {
 protected:
  void SetUp() override {
    fake_.reset();
    fake_.set_device_count(4);
    driver_ = cuda::open_driver({FAKE_CUDA}).value();
    nccl_->run_in_streams(reinterpret_cast<void*>(fake_.enqueue));
  }
  void TearDown() override {
    fake_.drain_all();
    abandoned_.reset();
    fake_.reset();
  }

  DeviceCalls::Resources resources(Rank rank) {
    DeviceCalls::Resources made;
    made.driver = driver_;
    made.api = nccl_.shared_api();
    made.device = rank;
    made.clock = &clock_;
    made.abandoned = abandoned_;
    made.log = Logger(LogLevel::kError, rank, -1);
    return made;
  }
  Outcomes run(Rank size, const Body& body, bool shut_down = true) {
    return run_world(
        {.over = GetParam(), .size = size, .timeout_s = kLong, .shut_down = shut_down, .log_fd = -1}, body);
  }

  // The calls abort when they are released, and then this rank's fake GPU is drained, so that
  // nothing is leaked.
  Result<std::shared_ptr<DeviceCalls>> join(Communicator& group, const DeviceCalls::Resources& with) {
    PC_ASSIGN_OR_RETURN(std::shared_ptr<DeviceCalls> joined, DeviceCalls::join(group, with, kLong));
    DeviceCalls* const calls = joined.get();
    return std::shared_ptr<DeviceCalls>(calls, [this, with, kept = std::move(joined)](DeviceCalls*) mutable {
      kept->abort(Status(Code::kAborted, "the test is over"));
      fake_.drain_device(with.device);
      kept.reset();
    });
  }

  // One rank's array of `count` floats, each the rank + 1, and the call that sums it.
  struct Array {
    cuda::Context context;
    cuda::Stream stream;
    cuda::DeviceMemory memory;
    std::size_t count;
    float* begin() { return reinterpret_cast<float*>(memory.at()); }  // the fake's memory is the host's
    cuda::DeviceCall sum() const {
      const Device here = {DeviceType::kCuda, static_cast<int16_t>(context.ordinal())};
      cuda::DeviceCall call;
      call.request.collective = Collective::kAllreduce;
      call.request.in = {reinterpret_cast<const std::byte*>(memory.at()), count, DType::kF32, here};
      call.request.out = {reinterpret_cast<std::byte*>(memory.at()), count, DType::kF32, here};
      call.request.stream = stream.get();
      call.request.site = "train.py:1";
      return call;
    }
  };
  Result<Array> array_of(Rank rank, std::size_t count = kCount) {
    PC_ASSIGN_OR_RETURN(cuda::Context context, cuda::Context::primary(driver_, rank));
    PC_ASSIGN_OR_RETURN(cuda::Stream stream, cuda::Stream::create(context));
    PC_ASSIGN_OR_RETURN(cuda::DeviceMemory memory,
                        cuda::DeviceMemory::allocate(context, count * sizeof(float)));
    Array made{context, std::move(stream), std::move(memory), count};
    std::fill(made.begin(), made.begin() + count, static_cast<float>(rank + 1));
    return made;
  }
  // Waits until everything that is queued on x's stream has completed.
  void drain(const Array& x) const { fake_.drain(x.stream.get()); }
  // Queues the producer of x on its stream: a copy of these values.
  Status produce(const Array& x, const std::vector<float>& values) const {
    PC_ASSIGN_OR_RETURN(const cuda::ContextGuard current, x.context.enter());
    return driver_->check(driver_->cuMemcpyHtoDAsync(x.memory.at(), values.data(),
                                                     values.size() * sizeof(float), x.stream.get()),
                          "cuMemcpyHtoDAsync");
  }
  // Queues a consumer of x on `stream`: a copy of x to `to`.
  Status copy(const Array& to, const Array& x, cuda::CUstream stream) const {
    PC_ASSIGN_OR_RETURN(const cuda::ContextGuard current, to.context.enter());
    return driver_->check(
        driver_->cuMemcpyDtoDAsync(to.memory.at(), x.memory.at(), x.count * sizeof(float), stream),
        "cuMemcpyDtoDAsync");
  }
  static Status expect(Array& x, float value) {
    return std::all_of(x.begin(), x.begin() + x.count, [&](float each) { return each == value; })
               ? Status::ok()
               : wrong("element 0 is " + std::to_string(*x.begin()) + " instead of " + std::to_string(value));
  }
  static bool is_nan(Array& x) {
    return std::all_of(x.begin(), x.begin() + x.count, [](float each) { return std::isnan(each); });
  }
  static Status host_sum(Communicator& group) {
    int32_t one = 1;
    Request request;
    request.collective = Collective::kAllreduce;
    request.out = {reinterpret_cast<std::byte*>(&one), 1, DType::kI32};
    request.in = request.out;
    PC_TRY(group.run(request));
    return one == group.size() ? Status::ok() : wrong("the sum of ones is " + std::to_string(one));
  }

  const FakeCuda fake_ = FakeCuda::at(FAKE_CUDA);
  nccl::testing::FakeLibrary nccl_{FAKE_NCCL_22809};
  nccl::SteadyClock clock_;
  std::shared_ptr<const cuda::Driver> driver_;
  std::shared_ptr<Abandoned> abandoned_ = std::make_shared<Abandoned>();
};

}  // namespace pc::testing
