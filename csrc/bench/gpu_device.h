// Arrays on GPUs. Calls are queued on a stream, one behind the other, and NCCL's own may be timed in turn with them.
#pragma once

#include <memory>

#include "bench/gpu.h"
#include "bench/measure.h"
#include "bench/raw_nccl.h"
#include "comm/devices.h"

namespace pc::bench {

// With what a rank measures.
struct GpuStage {
  const Gpu& gpu;
  Devices& devices;        // of the group's runtime
  RawNccl* raw = nullptr;  // null: it is not compared with
  const Options& options;
};

// What `stage` refers to must outlive it.
std::unique_ptr<MeasuredDevice> gpu_device(const GpuStage& stage);

}  // namespace pc::bench
