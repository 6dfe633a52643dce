// This rank's GPU in its group: the driver, the stream on which all work is queued, and the wait
// for that work.
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "gpu/cuda/context.h"
#include "gpu/cuda/device.h"
#include "gpu/cuda/stream.h"

namespace pc::bench {

// Thread-safety: belongs to the thread that opened it, in which its context is current.
class Gpu {
 public:
  static Result<std::unique_ptr<Gpu>> open(std::shared_ptr<const cuda::Driver> driver, int ordinal,
                                           Communicator& group);

  Communicator& group() const { return group_; }
  const cuda::Driver& driver_of() const { return context_.driver(); }
  const cuda::Context& context() const { return context_; }
  const cuda::DeviceInfo& info() const { return info_; }
  cuda::CUstream stream() const { return stream_.get(); }
  Device device() const { return {DeviceType::kCuda, static_cast<int16_t>(info_.ordinal)}; }

  // Waits until all queued work is done. Polls without sleeping, as timing programs usually do.
  // Fails if the group ends or its timeout passes.
  Status drain() const;

 private:
  Gpu(Communicator& group, cuda::Context context, cuda::DeviceInfo info, cuda::ContextGuard current,
      cuda::Stream stream)
      : group_(group),
        context_(std::move(context)),
        info_(std::move(info)),
        current_(std::move(current)),
        stream_(std::move(stream)) {}

  Communicator& group_;
  const cuda::Context context_;
  const cuda::DeviceInfo info_;
  const cuda::ContextGuard current_;
  const cuda::Stream stream_;
};

}  // namespace pc::bench
