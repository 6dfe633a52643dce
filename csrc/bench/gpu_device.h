// Arrays on GPUs. Calls are queued on a stream, one behind the other, and NCCL's own may be timed in turn with them.
#pragma once

#include <memory>

#include "bench/gpu.h"
#include "bench/measure.h"
#include "bench/raw_nccl.h"
#include "gpu/device_groups.h"

namespace pc::bench {

// With what a rank measures.
struct GpuStage {
  Communicator& group;
  const Gpu& gpu;
  GroupOnGpus& way;        // of collectives
  RawNccl* raw = nullptr;  // null: it is not compared with
  const Options& options;
  DirectMessages* messages = nullptr;  // of the same group; null: none are measured
  DeviceGroups* gpus = nullptr;        // of both; null: nothing but `way` is used
};

class GpuDevice final : public MeasuredDevice {
 public:
  explicit GpuDevice(const GpuStage& stage) : MeasuredDevice(stage.group), stage_(stage) {}
  Result<Route> route_of(const Case& what) const override;
  Result<std::unique_ptr<Calls>> prepare(const Case& what, bool in_place, uint64_t count) override;
  Result<std::optional<double>> time_copy(uint64_t nbytes) override;

 private:
  const GpuStage stage_;
};

}  // namespace pc::bench
