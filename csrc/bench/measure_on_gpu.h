// Times one operation at one size on arrays of GPUs, out of place and in place, and verifies its results.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "bench/gpu.h"
#include "bench/gpu_timing.h"
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
  const GpuOptions& options;
  DirectMessages* messages = nullptr;  // of the same group; null: none are measured
  DeviceGroups* gpus = nullptr;        // of both; null: nothing but `way` is used
};

// One half of a row. Times are of one call.
struct GpuHalf {
  PerIteration time;
  std::optional<PerIteration> raw;
  double algbw = 0, busbw = 0;             // GB/s, by time.until_done_s
  std::optional<uint64_t> wrong = {};      // elements, over all ranks; nothing: not checked
  std::optional<uint64_t> raw_wrong = {};  // likewise, of the results of NCCL's own call
};

struct GpuRow {
  Case what;
  uint64_t nbytes = 0, count = 0;  // Row
  uint64_t iterations = 0;
  std::optional<GpuHalf> out_of_place, in_place;  // nothing: not measured
  std::optional<double> copy_s;                   // on rank 0's GPU, which does nothing else meanwhile
};

// Which way a call goes: the same on all ranks.
struct Route {
  std::string_view way;  // GroupOnGpus::way_of()
  Status by_nccl;        // not OK: why not there
};
Route route_of(const GpuStage& stage, const Case& what);

// Collective.
Result<GpuRow> measure_on_gpu(const GpuStage& stage, const Case& what, uint64_t nbytes, const Effort& effort);

}  // namespace pc::bench
