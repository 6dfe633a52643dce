#include "gpu/ipc/ipc_join.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/gather_plain.h"
#include "gpu/cuda/copy.h"
#include "gpu/cuda/device.h"
#include "gpu/cuda/host_wait.h"
#include "gpu/cuda/memory.h"
#include "gpu/ipc/ipc_executor.h"

namespace pc {
namespace {

// A reason, as text. Plain data, exchanged as bytes by ranks of one version of this library.
struct Words {
  char text[200] = {};
  void set(const std::string& why) {  // keeps the first reason; truncates long ones
    if (text[0] == '\0') why.copy(text, sizeof text - 1);
  }
  std::string value() const { return {text, strnlen(text, sizeof text)}; }
};
struct Facts {
  Words why_not, why_not_reduce;
  char gpu[56] = {};  // uuid of the rank's GPU
  PeerArray shown;    // exported memory that holds `token`
  uint64_t token = 0;
};

Status not_in_reach(const std::string& why) {
  return Status(Code::kUnsupported, "these ranks do not reach each other's arrays on GPUs: " + why);
}

// Returns kUnsupported if the ranks cannot access each other's arrays, as far as all ranks know
// without communication.
Status may_reach(const Communicator& group, const HostMap& hosts) {
  if (hosts.count(group.world_ranks()) > 1) return not_in_reach("they are on several hosts");
  if (group.size() <= device::kMostSources) return Status::ok();
  return not_in_reach("they are " + std::to_string(group.size()) + ", and the kernels take " +
                      std::to_string(device::kMostSources));
}

// Returns for each rank the first world rank in the same process, or a negative number if the rank
// is in this process.
std::vector<Rank> processes_of(const Communicator& group, const HostMap& hosts, bool by_handles) {
  const auto first = [&](Rank world_rank) {
    const auto same = [&its = hosts.ranks[static_cast<std::size_t>(world_rank)]](const HostMap::Entry& each) {
      return each.pid == its.pid && each.pid_key == its.pid_key && each.host_key == its.host_key;
    };
    return static_cast<Rank>(std::find_if(hosts.ranks.begin(), hosts.ranks.end(), same) -
                             hosts.ranks.begin());
  };
  const std::span<const Rank> world_ranks = group.world_ranks();
  const Rank here = first(world_ranks[static_cast<std::size_t>(group.rank())]);
  std::vector<Rank> processes;
  for (const Rank each : world_ranks)
    processes.push_back(first(each) == here && !by_handles ? -1 : first(each));
  return processes;
}

// This rank's side of the trial.
class Trial {
 public:
  static Result<Trial> create(const IpcResources& resources, const std::vector<Rank>& processes) {
    PC_ASSIGN_OR_RETURN(cuda::Context context, cuda::Context::primary(resources.driver, resources.device));
    PC_ASSIGN_OR_RETURN(const cuda::ContextGuard current, context.enter());
    PC_ASSIGN_OR_RETURN(cuda::DeviceKernels device_kernels,
                        cuda::DeviceKernels::create(context, resources.kernels));
    PC_ASSIGN_OR_RETURN(cuda::DeviceMemory shown, cuda::DeviceMemory::allocate(context, sizeof(uint64_t)));
    PC_ASSIGN_OR_RETURN(cuda::PinnedMemory page, cuda::PinnedMemory::allocate(context, sizeof(uint64_t)));
    PC_ASSIGN_OR_RETURN(cuda::Stream stream, cuda::Stream::create(context));
    PC_ASSIGN_OR_RETURN(cuda::Event end, cuda::Event::create(context));
    IpcMemory memory(context, processes,
                     resources.mappings != nullptr ? resources.mappings : std::make_shared<IpcMappings>());
    return Trial{std::move(context), std::move(memory), std::move(device_kernels),
                 std::move(shown),   std::move(page),   std::move(stream),
                 std::move(end)};
  }
  Result<PeerArray> show(uint64_t token, const WaitContext& wait) {
    std::memcpy(page.bytes().data(), &token, sizeof token);
    PC_ASSIGN_OR_RETURN(const cuda::ContextGuard current, context.enter());
    PC_TRY(cuda::copy_to_device(context.driver(), shown.at(), page.bytes(), stream.get()));
    PC_TRY(settle(wait));
    return memory.export_array({reinterpret_cast<const std::byte*>(shown.at()), sizeof token, DType::kU8});
  }
  Status read(Rank peer, const Facts& facts, const WaitContext& wait) {
    PC_ASSIGN_OR_RETURN(const cuda::ContextGuard current, context.enter());
    PC_ASSIGN_OR_RETURN(const std::byte* const there, memory.reach(peer, facts.shown));
    PC_TRY(cuda::copy_to_host(context.driver(), page.bytes(), reinterpret_cast<cuda::CUdeviceptr>(there),
                              stream.get()));
    PC_TRY(settle(wait));
    uint64_t token = 0;
    std::memcpy(&token, page.bytes().data(), sizeof token);
    return token == facts.token ? Status::ok()
                                : Status(Code::kUnsupported, "what it shows holds something else here");
  }

  cuda::Context context;
  IpcMemory memory;
  cuda::DeviceKernels device_kernels;
  cuda::DeviceMemory shown;
  cuda::PinnedMemory page;
  cuda::Stream stream;
  cuda::Event end;

 private:
  Status settle(const WaitContext& wait) {
    PC_TRY(cuda::record(context.driver(), end.get(), stream.get()));
    PC_ASSIGN_OR_RETURN(const WaitEnd how, cuda::wait_on_host(context.driver(), end.get(), {wait}));
    return how == WaitEnd::kReady ? Status::ok()
                                  : Status(Code::kTimeout, "the GPU does not copy 8 bytes in time");
  }
};

Status all_show(const std::vector<Facts>& all) {
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (const std::string why = all[rank].why_not.value(); !why.empty())
      return not_in_reach(rank_text(static_cast<Rank>(rank)) + ": " + why);
  }
  return Status::ok();
}

// Returns for each rank the worker that moves its arrays. Ranks that share a GPU have the same
// worker.
std::vector<Rank> workers_of(const std::vector<Facts>& all) {
  std::vector<Rank> workers;
  for (const Facts& each : all) {
    const auto first = std::find_if(all.begin(), all.end(), [&](const Facts& other) {
      return std::strncmp(other.gpu, each.gpu, sizeof each.gpu) == 0;
    });
    workers.push_back(static_cast<Rank>(first - all.begin()));
  }
  return workers;
}

Status can_all_reduce(const std::vector<Facts>& all) {
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (const std::string why = all[rank].why_not_reduce.value(); !why.empty())
      return unsupported(rank_text(static_cast<Rank>(rank)) + " cannot reduce on its GPU: " + why);
  }
  return Status::ok();
}

}  // namespace

Result<std::unique_ptr<cuda::DeviceExecutor>> join_ipc(Communicator& group, Runtime& runtime,
                                                       const IpcResources& resources, double timeout_s) {
  const Deadline deadline = Deadline::after(timeout_s < 0 ? group.timeout_s() : timeout_s);
  const auto left_s = [&] { return std::max(deadline.remaining_s(), 0.0); };
  PC_TRY(may_reach(group, runtime.hosts()));
  const std::vector<Rank> processes = processes_of(group, runtime.hosts(), resources.by_handles);
  Facts facts;
  facts.token = fnv1a(runtime.name() + "/" + std::to_string(group.rank()) + "/" +
                      std::to_string(deadline.when().time_since_epoch().count()));
  const WaitContext wait = group.waiting_until(deadline);
  Result<Trial> trial = resources.driver != nullptr
                            ? Trial::create(resources, processes)
                            : Status(Code::kUnsupported, "the GPU's driver cannot be opened");
  const Status shown = [&]() -> Status {
    PC_TRY(trial.status());
    PC_ASSIGN_OR_RETURN(const cuda::DeviceInfo info,
                        cuda::describe_device(*resources.driver, resources.device));
    info.uuid.copy(facts.gpu, sizeof facts.gpu - 1);
    if (const Status& reduces = trial.value().device_kernels.can_reduce(); !reduces.is_ok())
      facts.why_not_reduce.set(reduces.message());
    PC_ASSIGN_OR_RETURN(facts.shown, trial.value().show(facts.token, wait));
    return Status::ok();
  }();
  if (!shown.is_ok()) facts.why_not.set(shown.message());
  PC_ASSIGN_OR_RETURN(const std::vector<Facts> all,
                      gather_plain(group, facts, "what each rank shows of its GPU", left_s()));
  PC_TRY(all_show(all));

  Status refused;  // a negative result that all ranks know; any other failure here is known only to this rank
  auto joined = [&]() -> Result<std::unique_ptr<cuda::DeviceExecutor>> {
    PC_ASSIGN_OR_RETURN(Communicator* const control_group, runtime.make_internal_group(group));
    Words outcome;
    for (std::size_t peer = 0; peer < all.size(); ++peer) {
      const bool elsewhere =
          processes[peer] < 0 && std::strncmp(all[peer].gpu, facts.gpu, sizeof facts.gpu) != 0;
      const Status read = elsewhere ? Status(Code::kUnsupported, "it is in this process and uses another GPU")
                                    : trial.value().read(static_cast<Rank>(peer), all[peer], wait);
      if (!read.is_ok()) outcome.set("of " + rank_text(static_cast<Rank>(peer)) + ": " + read.message());
    }
    trial.value().memory.let_go();
    for (std::size_t peer = 0; peer < all.size(); ++peer)
      trial.value().memory.close(static_cast<Rank>(peer), all[peer].shown);
    PC_ASSIGN_OR_RETURN(
        const std::vector<Words> outcomes,
        gather_plain(*control_group, outcome, "whether ranks reach each other's GPUs", left_s()));
    for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
      if (const std::string why = outcomes[rank].value(); !why.empty())
        return refused =
                   not_in_reach(rank_text(static_cast<Rank>(rank)) + " does not reach the memory " + why);
    }
    IpcExecutor::Parts parts{control_group,
                             std::move(trial.value().memory),
                             std::move(trial.value().device_kernels),
                             can_all_reduce(all),
                             workers_of(all),
                             resources.abandoned,
                             resources.log};
    return IpcExecutor::create(trial.value().context, std::move(parts));
  }();
  if (joined.is_ok() || !refused.is_ok()) return joined;
  // Ends the group, because the other ranks may wait for this rank in the trial or in the first
  // call.
  const Status end = group.alive();
  if (end.is_ok()) group.quit(joined.status());
  if (!end.is_ok()) return end;
  return joined.status().code() == Code::kUnsupported ? Status(Code::kInternal, joined.status().message())
                                                      : joined.status();
}

}  // namespace pc
