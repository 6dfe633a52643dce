#include "bench/gpu_rank.h"

#include <cstdlib>
#include <memory>
#include <utility>

#include "bench/gpu.h"
#include "bench/gpu_output.h"
#include "bench/join.h"
#include "bench/numbers.h"
#include "gpu/device_groups.h"
#include "gpu/nccl/library.h"
#include "kernels/device/embedded.h"

namespace pc::bench {
namespace {

// From pycollective/tools/bench_binary.py: where Python's packages of NCCL are, which no program finds by itself.
constexpr const char* kNcclFolders = "PYCOLLECTIVE_BENCH_NCCL_FOLDERS";

std::vector<std::string> nccl_folders() {
  const char* const folders = std::getenv(kNcclFolders);  // NOLINT(concurrency-mt-unsafe): nobody sets it
  const bool none = folders == nullptr || *folders == '\0';
  return none ? std::vector<std::string>() : split(folders);
}

Result<DeviceGroups::Options> group_options() {
  // Never destroyed: what it keeps is in use until the process ends.
  static const auto& abandoned = *new const std::shared_ptr<Abandoned>(std::make_shared<Abandoned>());
  PC_ASSIGN_OR_RETURN(
      DeviceGroups::Options options,
      DeviceGroups::Options::from_environment(nccl_folders(), std::make_shared<cuda::SemaphorePool>()));
  options.abandoned = abandoned;
  options.peers.kernels = embedded_kernels();
  options.log = Logger(LogLevel::kError, -1);  // the way is in the table
  return options;
}

// Before there is a second thread, which the driver may start.
void be_on_a_host_of_its_own(Rank rank) {
  const std::string name = "rank " + std::to_string(rank);
  ::setenv("NCCL_HOSTID", name.c_str(), 0);  // NOLINT(concurrency-mt-unsafe)
}

int device_of(const GpuOptions& options, Rank local_rank, int count) {
  const std::size_t rank = static_cast<std::size_t>(local_rank);
  if (options.devices.empty()) return static_cast<int>(rank % static_cast<std::size_t>(count));
  return options.devices[rank % options.devices.size()];
}

// What was asked for and needs NCCL.
Status may_measure(const GpuOptions& options, const Status& by_nccl) {
  if (by_nccl.is_ok() || (!options.raw && options.graph_launches == 0)) return Status::ok();
  const std::string what =
      options.raw ? "--raw compares with NCCL" : "-G: what goes into a CUDA graph goes by NCCL";
  return Status(Code::kUnsupported, what + ", and this call does not go there: " + by_nccl.message());
}

Status measure_all(const GpuStage& stage, const Options& options, GpuOutput& output) {
  for (uint64_t cycle = 0; options.gpu.cycles == 0 || cycle < options.gpu.cycles; ++cycle) {
    for (const Case& what : options.cases) {
      const Route route = route_of(stage, what);
      PC_TRY(may_measure(options.gpu, route.by_nccl));
      PC_TRY(output.begin(what, route));
      for (const uint64_t nbytes : options.sizes) {
        const Result<GpuRow> row = measure_on_gpu(stage, what, nbytes, effort(options, nbytes));
        if (row.status().code() == Code::kUnsupported)  // too late for that: a failure
          return Status(Code::kInternal, row.status().message());
        PC_TRY(row.status());
        PC_TRY(output.add(row.value(), route));
      }
    }
  }
  return output.close();
}

// The others hear why, at once, where they would wait for this rank.
void leave(Communicator& world, const Status& why) {
  if (world.alive().is_ok()) world.quit(why);
}

// This rank's, once its way is known: what it is compared with, and the table.
Status measure_by(Runtime& runtime, const Gpu& gpu, DeviceGroups& gpus, GroupOnGpus& way,
                  const Options& options, Status& verdict) {
  Communicator& world = runtime.world();
  GpuScene scene{gpu.info().name, {}, {}, world.size()};
  std::unique_ptr<RawNccl> raw;
  if (way.by_nccl().is_ok()) {
    PC_ASSIGN_OR_RETURN(const nccl::Library library,
                        nccl::Library::open(nccl::surroundings_of_process(nccl_folders())));
    const nccl::Version& version = library.api().version;
    scene.nccl = std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
                 std::to_string(version.patch);
    scene.nccl_from = library.to_string();
    if (options.gpu.raw) {
      PC_ASSIGN_OR_RETURN(raw, RawNccl::join(world, library.shared_api()));
    }
  }
  const HostMap::Entry& here = runtime.hosts().ranks[static_cast<std::size_t>(world.rank())];
  PC_ASSIGN_OR_RETURN(const std::vector<std::string> devices, device_lines(world, gpu, here.host_name));
  GpuOutput output(options, std::move(scene), world.rank() == 0);
  output.open(devices);
  PC_ASSIGN_OR_RETURN(const std::shared_ptr<DirectMessages> messages,
                      gpus.messages_of(world, gpu.info().ordinal));
  const Status measured =
      measure_all({world, gpu, way, raw.get(), options.gpu, messages.get(), &gpus}, options, output);
  verdict = output.verdict();
  if (raw == nullptr) return measured;
  if (measured.is_ok()) return raw->close();
  leave(world, measured);  // first: an abort may take long
  raw->abort(measured);
  return measured;
}

}  // namespace

Status run_rank_on_gpu(const Options& options, const Place& place) {
  if (options.gpu.share) be_on_a_host_of_its_own(place.rank);
  PC_ASSIGN_OR_RETURN(std::shared_ptr<const cuda::Driver> driver, Gpu::driver());
  PC_ASSIGN_OR_RETURN(const std::unique_ptr<Runtime> runtime, join(options, place));
  Communicator& world = runtime->world();
  const int device = device_of(options.gpu, runtime->hosts().local_rank, driver->device_count);
  const Result<std::unique_ptr<Gpu>> gpu = Gpu::open(std::move(driver), device);
  if (!gpu.is_ok()) return leave(world, gpu.status()), gpu.status();
  PC_ASSIGN_OR_RETURN(DeviceGroups::Options of_groups, group_options());
  DeviceGroups groups(*runtime, std::move(of_groups));
  Status verdict;
  const Status measured = [&]() -> Status {
    PC_ASSIGN_OR_RETURN(
        const std::shared_ptr<GroupOnGpus> way,
        groups.of(world, device, gpu.value()->stream(), -1, options.gpu.way == GpuWay::kNccl));
    return measure_by(*runtime, *gpu.value(), groups, *way, options, verdict);
  }();
  if (!measured.is_ok()) return leave(world, measured), groups.abort(measured), measured;
  PC_TRY(groups.close(world.timeout_s()));
  PC_TRY(runtime->shutdown(Deadline::after(world.timeout_s())));
  return place.rank == 0 ? verdict : Status::ok();
}

}  // namespace pc::bench
