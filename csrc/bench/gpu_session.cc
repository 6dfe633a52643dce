#include "bench/gpu_session.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/env.h"
#include "bench/format.h"
#include "bench/numbers.h"
#include "gpu/device_groups.h"
#include "gpu/nccl/library.h"
#include "kernels/device/embedded.h"

namespace pc::bench {
namespace {

// Set by pycollective/tools/bench_binary.py: the folders of Python's NCCL packages, which a native
// program cannot find.
constexpr const char* kNcclFolders = "PYCOLLECTIVE_BENCH_NCCL_FOLDERS";

std::vector<std::string> nccl_folders() {
  const char* const folders = std::getenv(kNcclFolders);  // NOLINT(concurrency-mt-unsafe): no code sets it
  const bool none = folders == nullptr || *folders == '\0';
  return none ? std::vector<std::string>() : split(folders);
}

}  // namespace

Result<std::shared_ptr<Devices>> make_devices(Runtime& runtime) {
  // Never destroyed: its contents are in use until the process ends.
  static const auto& abandoned = *new const std::shared_ptr<Abandoned>(std::make_shared<Abandoned>());
  PC_ASSIGN_OR_RETURN(
      DeviceGroups::Options options,
      DeviceGroups::Options::from_environment(nccl_folders(), std::make_shared<cuda::SemaphorePool>()));
  options.abandoned = abandoned;
  options.peers.kernels = embedded_kernels();
  options.log = Logger(LogLevel::kError, -1);  // the path is printed in the table
  return std::shared_ptr<Devices>(std::make_shared<DeviceGroups>(runtime, std::move(options)));
}

namespace {

int device_of(const Options& options, Rank local_rank, int count) {
  const std::size_t rank = static_cast<std::size_t>(local_rank);
  if (options.gpus.empty()) return static_cast<int>(rank % static_cast<std::size_t>(count));
  return options.gpus[rank % options.gpus.size()];
}

// Returns one line for each rank's GPU, in the format of nccl-tests. Collective.
Result<std::vector<std::string>> device_lines(const Gpu& gpu, const std::string& host) {
  Communicator& group = gpu.group();
  using Line = std::array<char, 192>;
  const cuda::DeviceInfo& info = gpu.info();
  Line mine = {};
  format("#  Rank %2d Group %2d Pid %6d on %10s device %2d [%s] %s", group.rank(), 0,
         static_cast<int>(::getpid()), host.c_str(), info.ordinal, info.pci_bus_id.c_str(), info.name.c_str())
      .copy(mine.data(), mine.size() - 1);
  std::vector<Line> all(static_cast<std::size_t>(group.size()));
  Request exchange;
  exchange.collective = Collective::kAllgather;
  exchange.in = {reinterpret_cast<const std::byte*>(&mine), sizeof mine, DType::kU8};
  exchange.out = {reinterpret_cast<std::byte*>(all.data()), sizeof mine * all.size(), DType::kU8};
  PC_TRY(group.run(exchange));
  std::vector<std::string> lines;
  for (const Line& each : all) lines.emplace_back(each.data(), ::strnlen(each.data(), each.size()));
  return lines;
}

}  // namespace

Result<std::shared_ptr<const cuda::Driver>> GpuSession::open_driver(const Options& options, Rank rank) {
  if (options.shares_gpu) {  // makes NCCL take each rank for a host of its own
    const std::string name = "rank " + std::to_string(rank);
    ::setenv("NCCL_HOSTID", name.c_str(), 0);  // NOLINT(concurrency-mt-unsafe)
  }
  PC_ASSIGN_OR_RETURN(const std::string path, env_text(Env::kCudaLib));
  return cuda::open_driver({path});
}

Result<std::unique_ptr<GpuSession>> GpuSession::open(const Options& options, Runtime& runtime,
                                                     std::shared_ptr<const cuda::Driver> driver,
                                                     RunInfo& run_info) {
  PC_ASSIGN_OR_RETURN(std::shared_ptr<Devices> devices, runtime.devices().get());
  std::unique_ptr<GpuSession> session(new GpuSession(options, runtime, std::move(devices)));
  const Status joined = session->join(std::move(driver), run_info);
  if (!joined.is_ok()) return session->abort(joined), joined;
  return session;
}

Status GpuSession::join(std::shared_ptr<const cuda::Driver> driver, RunInfo& run_info) {
  Communicator& world = runtime_.world();
  const HostMap& hosts = runtime_.hosts();
  const int device = device_of(options_, hosts.local_rank, driver->device_count);
  PC_ASSIGN_OR_RETURN(gpu_, Gpu::open(std::move(driver), device, world));
  const bool insists = options_.backend == GpuBackend::kNccl;
  PC_TRY(devices_->join(world, device, gpu_->stream(), -1, insists));
  UserCall usual;
  usual.request.collective = Collective::kAllreduce;
  usual.request.in.dtype = usual.request.out.dtype = DType::kF32;
  if (devices_->route_of(world, usual).by_nccl.is_ok()) PC_TRY(join_nccl(run_info));
  run_info.gpu = gpu_->info().name;
  const HostMap::Entry& here = hosts.ranks[static_cast<std::size_t>(world.rank())];
  PC_ASSIGN_OR_RETURN(run_info.devices, device_lines(*gpu_, here.host_name));
  return Status::ok();
}

Status GpuSession::join_nccl(RunInfo& run_info) {
  PC_ASSIGN_OR_RETURN(const nccl::Library library,
                      nccl::Library::open(nccl::process_environment(nccl_folders())));
  const nccl::Version& version = library.api().version;
  run_info.nccl = format("%d.%d.%d", version.major, version.minor, version.patch);
  run_info.nccl_from = library.to_string();
  if (!options_.raw) return Status::ok();
  PC_ASSIGN_OR_RETURN(raw_, RawNccl::join(runtime_.world(), library.shared_api()));
  return Status::ok();
}

std::unique_ptr<MeasuredDevice> GpuSession::device() {
  return gpu_device({*gpu_, *devices_, raw_.get(), options_});
}

Status GpuSession::end(const Status& measured) {
  Status ended = measured;
  if (ended.is_ok() && raw_ != nullptr) ended = raw_->close();
  if (!ended.is_ok()) abort(ended);
  return ended;
}

void GpuSession::abort(const Status& why) {
  Communicator& world = runtime_.world();
  // first, so that the other ranks receive the reason before the aborts, which may take long
  if (world.alive().is_ok()) world.quit(why);
  if (raw_ != nullptr) raw_->abort(why);
  runtime_.devices().abort(why);
}

}  // namespace pc::bench
