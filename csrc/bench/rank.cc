#include "bench/rank.h"

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bench/gpu_session.h"
#include "bench/groups.h"
#include "bench/host_device.h"
#include "bench/output.h"

namespace pc::bench {
namespace {

RunInfo run_info_of(const HostMap& hosts, const Communicator& group) {
  std::set<std::string> keys;
  for (const HostMap::Entry& entry : hosts.ranks) keys.insert(entry.host_key);
  const std::string count = keys.size() == 1 ? "" : std::to_string(keys.size()) + " hosts, rank 0 on ";
  RunInfo run_info;
  run_info.ranks.assign(group.world_ranks().begin(), group.world_ranks().end());
  run_info.hosts = "on " + count + hosts.ranks.front().host_name;
  run_info.one_clock = hosts.local_size == static_cast<Rank>(hosts.ranks.size());
  return run_info;
}

// Measures all sizes of one case. A rank that only waits measures nothing, but joins the reduction
// of the other ranks after each of their rows.
Status measure_sizes(const Options& options, const Case& what, const Membership& own, MeasuredDevice& device,
                     Output& output) {
  PC_ASSIGN_OR_RETURN(const Route route, device.route_of(what));
  PC_TRY(output.begin(what, route));
  const std::vector<uint64_t> sizes = what.operation->moves_data() ? options.sizes : std::vector<uint64_t>{0};
  for (const uint64_t nbytes : sizes) {
    std::optional<Row> row;
    if (own.group != nullptr) {
      const Result<Row> measured = measure(device, what, nbytes, effort(options, nbytes));
      // It is too late to report that the case cannot be measured here, so the error counts as a
      // failure.
      if (options.on_gpus() && measured.status().code() == Code::kUnsupported)
        return Status(Code::kInternal, measured.status().message());
      PC_TRY(measured.status());
      row = measured.value();
    }
    std::optional<uint64_t> none;
    if (!options.group.empty()) PC_TRY(sum_over_groups(own, row ? row->half().wrong : none));
    if (row) PC_TRY(output.add(*row, route));
  }
  return Status::ok();
}

Status measure_all(const Options& options, const Membership& own, MeasuredDevice& device, Output& output) {
  output.open();
  for (uint64_t cycle = 0; options.cycles == 0 || cycle < options.cycles; ++cycle) {
    for (const Case& what : options.cases) PC_TRY(measure_sizes(options, what, own, device, output));
  }
  return output.close();
}

}  // namespace

Status run_rank(const Options& options, const Role& role) {
  std::shared_ptr<const cuda::Driver> driver;
  if (options.on_gpus()) {
    PC_ASSIGN_OR_RETURN(driver, GpuSession::open_driver(options, role.rank));
  }
  PC_ASSIGN_OR_RETURN(const std::unique_ptr<Runtime> runtime, join(options, role));
  PC_ASSIGN_OR_RETURN(const Membership own, join_group(*runtime, options.group));
  Communicator& group = own.group != nullptr ? *own.group : own.world;
  RunInfo run_info = run_info_of(runtime->hosts(), group);
  std::unique_ptr<GpuSession> gpu;  // null: the arrays are on the host
  std::unique_ptr<MeasuredDevice> device;
  if (options.on_gpus()) {
    PC_ASSIGN_OR_RETURN(gpu, GpuSession::open(options, *runtime, std::move(driver), run_info));
    device = gpu->device();
  } else {
    device = host_device(group, run_info.one_clock);
  }
  Output output(options, run_info, own.prints);
  const Status measured = measure_all(options, own, *device, output);
  PC_TRY(gpu != nullptr ? gpu->end(measured) : measured);
  PC_TRY(runtime->shutdown(Deadline::after(own.world.timeout_s())));
  return own.prints ? output.check_results() : Status::ok();
}

}  // namespace pc::bench
