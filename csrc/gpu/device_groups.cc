#include "gpu/device_groups.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/env.h"
#include "gpu/cuda/context.h"
#include "gpu/cuda/stream.h"
#include "gpu/nccl/library.h"

namespace pc {

Result<DeviceGroups::Options> DeviceGroups::Options::from_environment(
    std::vector<std::string> wheel_folders, std::shared_ptr<cuda::SemaphorePool> of_process) {
  Options options;
  options.nccl = nccl::process_environment(std::move(wheel_folders));
  options.host_id = options.nccl.variable("NCCL_HOSTID");
  PC_ASSIGN_OR_RETURN(options.driver.path, env_text(Env::kCudaLib));
  PC_ASSIGN_OR_RETURN(const std::string check, env_text(Env::kCheck));
  options.strict = check == "strict";
  PC_ASSIGN_OR_RETURN(const std::string stream_check, env_text(Env::kStreamCheck));
  if (stream_check == "on") options.semaphores = std::move(of_process);
  PC_ASSIGN_OR_RETURN(options.log, Logger::from_environment());
  return options;
}

DeviceGroups::DeviceGroups(Runtime& runtime, Options options)
    : runtime_(runtime),
      options_(std::move(options)),
      p2p_channels_(runtime, [this](Communicator& channel, int device, void* stream, double timeout_s) {
        return join_channel(channel, device, stream, timeout_s);
      }) {
  if (options_.peers.mappings == nullptr) options_.peers.mappings = std::make_shared<IpcMappings>();
}

Result<std::shared_ptr<const cuda::Driver>> DeviceGroups::driver() {
  const std::lock_guard lock(mutex_);
  if (driver_ == nullptr) {
    PC_ASSIGN_OR_RETURN(driver_, cuda::open_driver(options_.driver));
  }
  return driver_;
}

DeviceCalls::Resources DeviceGroups::resources(int device) {
  DeviceCalls::Resources resources;
  resources.device = device;
  resources.peers = options_.peers;
  resources.abandoned = options_.abandoned;
  resources.host_id = options_.host_id;
  resources.clock = &clock_;
  resources.log = options_.log;
  resources.strict = options_.strict;
  resources.interrupted = options_.interrupted;
  resources.semaphores = options_.semaphores;
  const Result<std::shared_ptr<const cuda::Driver>> driver = this->driver();
  if (!driver.is_ok()) return resources.why_not = driver.status(), resources;
  resources.driver = driver.value();
  const std::lock_guard lock(mutex_);
  if (api_ == nullptr) {
    const Result<nccl::Library> opened = nccl::Library::open(options_.nccl);
    if (!opened.is_ok()) return resources.why_not = opened.status(), resources;
    api_ = opened.value().shared_api();
    if (const std::string warning = nccl::warning_about(nccl::mapped_copies()); !warning.empty())
      options_.log.warning(warning);
  }
  resources.api = api_;
  return resources;
}

// Returns kInvalidArgument while `stream` is being captured into a graph: NCCL and the driver
// allocate memory when ranks join, which a capture forbids. If the driver is missing, returns OK,
// because the join reports that.
Status DeviceGroups::may_join(int device, void* stream) {
  const Result<std::shared_ptr<const cuda::Driver>> driver = this->driver();
  if (!driver.is_ok()) return Status::ok();
  PC_ASSIGN_OR_RETURN(const cuda::Context context, cuda::Context::primary(driver.value(), device));
  PC_ASSIGN_OR_RETURN(const cuda::ContextGuard current, context.enter());
  PC_ASSIGN_OR_RETURN(const bool captures,
                      cuda::is_capturing(*driver.value(), static_cast<cuda::CUstream>(stream)));
  if (!captures) return Status::ok();
  return Status(
      Code::kInvalidArgument,
      "the stream is being captured into a CUDA graph, and the ranks of this group have not joined on "
      "their GPUs yet: make one call of this group on arrays of the GPU before");
}

Result<std::shared_ptr<GroupOnGpus>> DeviceGroups::of(Communicator& group, int device, void* stream,
                                                      double timeout_s, bool insists) {
  std::shared_ptr<Group> its;
  {
    const std::lock_guard lock(mutex_);
    PC_TRY(ended_);
    for (const auto& [of, messages] : messages_)
      if (of.first == &group) PC_TRY(messages->take_failure());
    std::shared_ptr<Group>& known = groups_[&group];
    if (known == nullptr) known = std::make_shared<Group>();
    its = known;
  }
  const Deadline deadline = Deadline::after(timeout_s < 0 ? group.timeout_s() : timeout_s);
  PC_ASSIGN_OR_RETURN(const FifoLock::Held joining, its->joining.take(group, deadline));
  if (its->backend != nullptr) {
    if (insists) PC_TRY(its->backend->by_nccl());
    return its->backend;
  }
  PC_ASSIGN_OR_RETURN(its->backend, make_backend(group, device, stream, deadline, insists));
  const std::lock_guard lock(mutex_);
  if (!ended_.is_ok()) {  // the runtime has ended during the join
    std::exchange(its->backend, nullptr)->abort(ended_);
    return ended_;
  }
  joined_.push_back(its->backend);
  return its->backend;
}

Result<std::shared_ptr<GroupOnGpus>> DeviceGroups::make_backend(Communicator& group, int device, void* stream,
                                                                Deadline deadline, bool insists) {
  const auto left_s = [&] { return std::max(deadline.remaining_s(), 0.0); };
  const Status may = insists ? Status::ok() : group.gpus_may_join();
  if (may.is_ok()) PC_TRY(may_join(device, stream));
  Result<std::shared_ptr<DeviceCalls>> joined =
      may.is_ok() ? DeviceCalls::join(group, resources(device), left_s()) : may;
  if (!joined.is_ok() && (insists || joined.status().code() != Code::kUnsupported)) return joined.status();
  Result<std::shared_ptr<DeviceCalls>> peers =
      joined.is_ok() ? Status(Code::kUnsupported, "calls of this group go by NCCL")
      : !may.is_ok() ? may
                     : DeviceCalls::join_ipc(group, runtime_, resources(device), left_s());
  if (!peers.is_ok() && peers.status().code() != Code::kUnsupported) return peers.status();
  const bool is_channel = [&] {
    const std::lock_guard lock(mutex_);
    return channels_.count(&group) != 0;
  }();
  if (!joined.is_ok() && !peers.is_ok() && may.is_ok() && group.rank() == 0 && !is_channel)
    options_.log.warning("calls of this group on GPUs go through the host: " + joined.status().message() +
                         "; " + peers.status().message());
  PC_ASSIGN_OR_RETURN(std::shared_ptr<const cuda::Driver> driver, this->driver());
  return std::make_shared<GroupOnGpus>(group, std::move(driver), device, std::move(joined), std::move(peers));
}

Result<std::shared_ptr<GroupOnGpus>> DeviceGroups::join_channel(Communicator& channel, int device,
                                                                void* stream, double timeout_s) {
  {
    const std::lock_guard lock(mutex_);
    channels_.insert(&channel);
  }
  return of(channel, device, stream, timeout_s);
}

Result<std::shared_ptr<DirectMessages>> DeviceGroups::messages_of(Communicator& group, int device) {
  PC_ASSIGN_OR_RETURN(const std::shared_ptr<const cuda::Driver> driver, this->driver());
  const std::lock_guard lock(mutex_);
  PC_TRY(ended_);
  std::shared_ptr<DirectMessages>& its = messages_[{&group, device}];
  if (its == nullptr) {
    PC_ASSIGN_OR_RETURN(its, DirectMessages::create(group, p2p_channels_, driver, device));
  }
  return its;
}

// Determines the GPUs of the call's arrays, and calls `make` with the backend of the call.
// `Outcome` is a Status or a Result.
template <class Outcome, class Make>
Outcome DeviceGroups::by_backend(Communicator& group, UserCall& call, double timeout_s, Make&& make) {
  Request& request = call.request;
  PC_ASSIGN_OR_RETURN(const int device, place(request));
  PC_ASSIGN_OR_RETURN(const std::unique_ptr<const IoVec> cut, cut_at_allocations(call));
  if (call.kind != UserCall::Kind::kCollective) {
    PC_ASSIGN_OR_RETURN(const std::shared_ptr<DirectMessages> messages, messages_of(group, device));
    return make(*messages);
  }
  PC_ASSIGN_OR_RETURN(const std::shared_ptr<GroupOnGpus> backend,
                      of(group, device, cuda::stream_of(request), timeout_s));
  return make(*backend);
}

Status DeviceGroups::run(Communicator& group, UserCall call, double timeout_s) {
  bool has_backend = false;
  const Status ended = by_backend<Status>(group, call, timeout_s, [&](auto& backend) {
    has_backend = true;
    return backend.run(call, timeout_s);
  });
  if (!has_backend && call.found != nullptr) group.messages().put_back(*call.found);
  return ended;
}

Result<std::shared_ptr<AsyncWork>> DeviceGroups::begin(Communicator& group, UserCall call, AsyncOptions how) {
  using Begun = Result<std::shared_ptr<AsyncWork>>;
  if (how.keeps != nullptr) call.keeps = std::move(how.keeps);
  return by_backend<Begun>(group, call, how.timeout_s, [&](auto& backend) -> Begun {
    PC_ASSIGN_OR_RETURN(std::shared_ptr<GpuWork> begun,
                        backend.begin(call, how.timeout_s, std::move(how.on_end)));
    return std::shared_ptr<AsyncWork>(std::move(begun));
  });
}

// Returns null if the group has not joined, or if all groups have ended.
std::shared_ptr<GroupOnGpus> DeviceGroups::joined(const Communicator& group) {
  const std::lock_guard lock(mutex_);
  const auto its = std::find_if(joined_.begin(), joined_.end(),
                                [&](const auto& each) { return &each->group() == &group; });
  return its == joined_.end() || !ended_.is_ok() ? nullptr : *its;
}

bool DeviceGroups::can_split(const Communicator& group) {
  const std::shared_ptr<GroupOnGpus> its = joined(group);
  return its != nullptr && its->can_split();
}

Devices::Route DeviceGroups::route_of(const Communicator& group, const UserCall& call) {
  const std::shared_ptr<GroupOnGpus> its = joined(group);
  if (its == nullptr) return {{}, Status(Code::kUnsupported, not_known_yet())};
  return {its->backend_of(call), its->by_nccl(call)};
}

bool DeviceGroups::knows(const Communicator& group) {
  const std::lock_guard lock(mutex_);
  return groups_.count(&group) != 0 || std::any_of(messages_.begin(), messages_.end(), [&](const auto& each) {
           return each.first.first == &group;
         });
}

Status DeviceGroups::split(const Communicator& group, Communicator* child, double timeout_s) {
  const std::shared_ptr<GroupOnGpus> parent = joined(group);
  if (parent == nullptr) return Status(Code::kNotInitialized, "the group was closed while it was split");
  PC_ASSIGN_OR_RETURN(std::shared_ptr<GroupOnGpus> made, parent->split(child, timeout_s));
  if (made == nullptr) return Status::ok();
  const std::lock_guard lock(mutex_);
  if (!ended_.is_ok()) {  // the runtime has ended during the split
    made->abort(ended_);
    return ended_;
  }
  const auto its = std::make_shared<Group>();
  its->backend = made;
  groups_[child] = its;
  joined_.push_back(std::move(made));
  return Status::ok();
}

// Describes the path of messages, and each channel of this rank to or from a rank of the group.
std::string DeviceGroups::explain_messages(const Communicator& group) {
  std::string text =
      "up to 64 KiB, and lists, through the host; larger ones between two GPUs as a broadcast of these two "
      "ranks would go";
  const Status may = group.gpus_may_join();
  if (!may.is_ok()) return "through the host: " + may.message();
  const std::span<const Rank> world = group.world_ranks();
  const auto number_of = [&](Rank rank) {
    return std::find(world.begin(), world.end(), rank) - world.begin();
  };
  for (const std::shared_ptr<GroupOnGpus>& each : in_common_order()) {
    const Communicator& channel = each->group();
    {
      const std::lock_guard lock(mutex_);
      if (channels_.count(&channel) == 0) continue;
    }
    const bool sends = channel.rank() == 0;
    const auto peer = number_of(channel.world_ranks()[sends ? 1 : 0]);
    if (peer == group.size()) continue;
    const std::string backend = each->explain(Collective::kBroadcast);
    text += std::string(sends ? "\nto" : "\nfrom") + " rank " + std::to_string(peer) + ": " +
            backend.substr(0, backend.find('\n'));
  }
  return text;
}

std::string DeviceGroups::explain(const Communicator& group, std::optional<Collective> collective) {
  if (!collective) return explain_messages(group);
  std::shared_ptr<Group> its;
  {
    const std::lock_guard lock(mutex_);
    const auto known = groups_.find(&group);
    if (known != groups_.end()) its = known->second;
  }
  std::shared_ptr<GroupOnGpus> backend;
  if (its != nullptr) {
    // does not wait for a join in progress, which may take long
    const std::optional<FifoLock::Held> joining = its->joining.take_now();
    if (joining) backend = its->backend;
  }
  if (backend != nullptr) return backend->explain(*collective);
  return not_known_yet();
}

// Returns the backends in an order that is the same on all ranks, so that ranks that close shared
// groups do not deadlock: first groups in the order in which they joined, then channels in the
// order of their ranks.
std::vector<std::shared_ptr<GroupOnGpus>> DeviceGroups::in_common_order() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<GroupOnGpus>> all = joined_;
  const auto channels = std::stable_partition(
      all.begin(), all.end(), [this](const auto& each) { return channels_.count(&each->group()) == 0; });
  std::sort(channels, all.end(), [](const auto& a, const auto& b) {
    const std::span<const Rank> left = a->group().world_ranks(), right = b->group().world_ranks();
    return std::pair(left[0], left[1]) < std::pair(right[0], right[1]);
  });
  return all;
}

Status DeviceGroups::settle(double timeout_s) {
  const std::vector<std::shared_ptr<GroupOnGpus>> all = in_common_order();
  for (const std::shared_ptr<GroupOnGpus>& each : all) PC_TRY(each->settle(timeout_s));
  return Status::ok();
}

Status DeviceGroups::close(double timeout_s) {
  const Deadline deadline = Deadline::after(timeout_s);
  Status first;
  const auto close_each = [&](const auto& all) {
    for (const auto& each : all) {
      const Status closed = each->close(std::max(deadline.remaining_s(), 0.0));
      if (first.is_ok()) first = closed;
    }
  };
  close_each(messages());
  close_each(in_common_order());
  const Status after(Code::kNotInitialized, "the world of this group was shut down");
  abort(first.is_ok() ? after : first);  // has no effect on groups that are closed
  return first;
}

void DeviceGroups::abort(const Status& why) {
  std::vector<std::shared_ptr<GroupOnGpus>> all;
  {
    const std::lock_guard lock(mutex_);
    if (!ended_.is_ok()) return;
    ended_ = why;
    all = joined_;
  }
  for (const std::shared_ptr<DirectMessages>& each : messages()) each->abort();
  p2p_channels_.abort(why);
  for (const std::shared_ptr<GroupOnGpus>& each : all)
    each->begin_abort(why);  // starts all aborts at once: each may take seconds
  for (const std::shared_ptr<GroupOnGpus>& each : all) each->abort(why);
}

std::vector<std::shared_ptr<DirectMessages>> DeviceGroups::messages() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<DirectMessages>> all;
  for (const auto& [of, each] : messages_) all.push_back(each);
  return all;
}

}  // namespace pc
