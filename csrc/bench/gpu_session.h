// What a rank opens to measure on a GPU: the driver, its GPU, and the group's paths between GPUs.
#pragma once

#include <memory>

#include "bench/gpu_device.h"
#include "bench/table.h"
#include "comm/runtime.h"

namespace pc::bench {

Result<std::shared_ptr<Devices>> make_devices(Runtime& runtime);  // a value for RuntimeOptions::make_devices

// Thread-safety: only the thread that opened it.
class GpuSession {
 public:
  // Call before the rank joins the world and before there is a second thread. Fails with
  // kUnsupported and the reason if there is no driver.
  static Result<std::shared_ptr<const cuda::Driver>> open_driver(const Options& options, Rank rank);
  // Describes the GPUs and NCCL in `run_info`. The options and the runtime must outlive the
  // session. Collective; a failure on one rank ends the world.
  static Result<std::unique_ptr<GpuSession>> open(const Options& options, Runtime& runtime,
                                                  std::shared_ptr<const cuda::Driver> driver,
                                                  RunInfo& run_info);

  std::unique_ptr<MeasuredDevice> device();
  // Ends the session. `measured` is the result of the measurement. Returns `measured` if it is an
  // error, otherwise the result of closing NCCL. The caller then shuts the runtime down.
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
  std::unique_ptr<RawNccl> raw_;  // null: no comparison with NCCL's own calls
};

}  // namespace pc::bench
