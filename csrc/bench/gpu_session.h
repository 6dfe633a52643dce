// What a rank that measures on a GPU opens: the driver, its GPU, and the group's ways between GPUs.
#pragma once

#include <memory>

#include "bench/gpu_device.h"
#include "bench/table.h"
#include "comm/runtime.h"

namespace pc::bench {

Result<std::shared_ptr<Devices>> make_devices(Runtime& runtime);  // RuntimeOptions

// Thread-safety: one thread, which opens it.
class GpuSession {
 public:
  // Before the rank joins the others, and before there is a second thread: kUnsupported, and why, where there is no driver.
  static Result<std::shared_ptr<const cuda::Driver>> open_driver(const Options& options, Rank rank);
  // Says in `run_info` what there is. The options and the runtime must outlive it. Collective; if it fails,
  // the world ends.
  static Result<std::unique_ptr<GpuSession>> open(const Options& options, Runtime& runtime,
                                                  std::shared_ptr<const cuda::Driver> driver,
                                                  RunInfo& run_info);

  std::unique_ptr<MeasuredDevice> device();
  // `measured`: with what the measurement has ended, which is the answer unless the end fails. The runtime's shutdown() follows.
  Status end(const Status& measured);

 private:
  GpuSession(const Options& options, Runtime& runtime, std::shared_ptr<Devices> devices)
      : options_(options),
        runtime_(runtime),
        devices_(std::move(devices)) {}
  Status join(std::shared_ptr<const cuda::Driver> driver, RunInfo& run_info);
  Status join_nccl(RunInfo& run_info);
  void abort(const Status& why);

  const Options& options_;
  Runtime& runtime_;
  std::unique_ptr<Gpu> gpu_;
  const std::shared_ptr<Devices> devices_;
  std::unique_ptr<RawNccl> raw_;  // null: it is not compared with
};

}  // namespace pc::bench
