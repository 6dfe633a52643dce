// Arrays on GPUs. Calls are queued on a stream one after the other. NCCL's own calls may be timed
// alternately with them.
#pragma once

#include <memory>

#include "bench/gpu.h"
#include "bench/measure.h"
#include "bench/raw_nccl.h"
#include "comm/devices.h"

namespace pc::bench {

// What a rank needs to measure.
struct GpuStage {
  const Gpu& gpu;
  Devices& devices;        // those of the group's runtime
  RawNccl* raw = nullptr;  // null: no comparison with NCCL's own calls
  const Options& options;
};

// All objects that `stage` refers to must outlive the returned device.
std::unique_ptr<MeasuredDevice> gpu_device(const GpuStage& stage);

}  // namespace pc::bench
