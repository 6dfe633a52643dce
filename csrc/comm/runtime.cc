#include "comm/runtime.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>
#include <numeric>
#include <set>

#include "base/clock.h"
#include "bootstrap/rendezvous.h"
#include "bootstrap/shm_domains.h"
#include "comm/devices.h"
#include "comm/group_parts.h"
#include "comm/shared_memory.h"
#include "engine/flight_text.h"
#include "engine/plan/plan_executor.h"
#include "failure/descriptor.h"
#include "operation/offered_message.h"
#include "operation/progress.h"
#include "transport/loopback.h"
#include "transport/shm/core_balancer.h"
#include "transport/shm/shm.h"
#include "transport/tcp/tcp.h"

namespace pc {
namespace {

// Bits in the id of a group. kInternalBit marks the groups of make_internal_group(). kChannelBit
// marks the groups of make_channel(); the lower bits of such an id are the two ranks.
constexpr uint32_t kInternalBit = 0x8000'0000, kChannelBit = 0x4000'0000;
constexpr Rank kMostInChannels = 1 << 14;
constexpr uint32_t kMostGroupIds = place_of(MessagePart::kAnswer);  // the bits above have other meanings
static_assert(place_of(MessagePart::kGo) > kMostGroupIds && kChannelBit > place_of(MessagePart::kData));
constexpr double kGoodbyeS = 1;

Status check(const RuntimeOptions& options) {
  if (options.size < 1)
    return invalid_argument("size is " + std::to_string(options.size) + ": at least 1 rank is needed");
  if (options.size > kMostRanks) {
    return invalid_argument("size is " + std::to_string(options.size) + ": a world has at most " +
                            std::to_string(kMostRanks) + " ranks");
  }
  if (options.rank < 0 || options.rank >= options.size) {
    return invalid_argument("rank " + std::to_string(options.rank) + " of " + std::to_string(options.size) +
                            ": ranks are 0 to " + std::to_string(options.size - 1));
  }
  if (std::isnan(options.timeout_s) || options.timeout_s < 0)
    return invalid_argument("the timeout must be 0 or more seconds");
  if (options.size > 1 && !options.store)
    return invalid_argument("several ranks need a store to find each other");
  for (const std::string_view known : {"auto", "tcp", "shm"}) {
    if (options.transport == known) return Status::ok();
  }
  return invalid_argument("no transport is called '" + options.transport + "'; there are auto, tcp and shm");
}

Result<std::unique_ptr<Transport>> make_transport(const RuntimeOptions& options) {
  if (options.make_transport) return options.make_transport(options.rank);
  TcpOptions tcp;
  tcp.rank = options.rank;
  tcp.size = options.size;
  tcp.credentials = options.credentials;
  tcp.epoch = options.epoch;
  tcp.sockets = options.tcp_sockets;
  tcp.log = options.log;
  if (!options.bind_ips.empty()) tcp.bind_ips = options.bind_ips;
  return make_tcp_transport(tcp);
}

std::string describe_domain(const HostMap& hosts, Rank self) {
  const HostMap::Entry& here = hosts.ranks[static_cast<std::size_t>(self)];
  if (!here.why_alone.empty()) return "no shared memory: " + here.why_alone;
  const auto shares = [&](const HostMap::Entry& entry) { return entry.domain == here.domain; };
  return "memory shared by " + std::to_string(std::count_if(hosts.ranks.begin(), hosts.ranks.end(), shares)) +
         " ranks";
}

std::string describe(const RuntimeOptions& options, const Transport& transport, const WorldInfo& world_info) {
  const HostMap& hosts = world_info.hosts;
  std::string text =
      "connected as rank " + std::to_string(options.rank) + " of " + std::to_string(options.size) +
      " (rank " + std::to_string(hosts.local_rank) + " of " + std::to_string(hosts.local_size) + " on " +
      hosts.ranks[static_cast<std::size_t>(options.rank)].host_name + "), job " +
      fingerprint(options.credentials.job) + ", transport " + std::string(transport.name()) +
      ", TCP sockets to a rank " + std::to_string(options.tcp_sockets) + ", selection " +
      world_info.selection.to_string() + ", profile " +
      (world_info.profile.origin.empty() ? "none" : world_info.profile.origin) + " [" +
      world_info.profile.tuning.to_string() + "]" + ", key " + to_string(key_id(options.credentials.key)) +
      " (" + options.credentials.key_source + "), addresses";
  for (const std::string& address : world_info.addresses) text += " " + address;
  return text + ", " + describe_domain(hosts, options.rank);
}

std::vector<CallRecord> last_calls_of(const FlightRecorder& collectives, const FlightRecorder& messages) {
  std::vector<CallRecord> all = collectives.all();
  const std::vector<CallRecord> more = messages.all();
  all.insert(all.end(), more.begin(), more.end());
  std::stable_sort(all.begin(), all.end(),
                   [](const CallRecord& a, const CallRecord& b) { return a.began_ns < b.began_ns; });
  return all;
}

}  // namespace

// Members are destroyed in reverse order: the groups first, then the control thread and the
// executor, then the reactor and the transport.
struct Runtime::State {
  State(RuntimeOptions given, Runtime& runtime)
      : options(std::move(given)),
        devices(options.make_devices ? [this, &runtime] { return options.make_devices(runtime); }
                                     : LazyDevices::Make()) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    const Status closed(Code::kNotInitialized, "the runtime was closed without shutdown");
    devices.abort(closed);
    end(closed);
  }
  void end(const Status& why) {
    if (world) {
      end_groups(why);
      close_groups();
    }
    close();
  }
  void close() {
    if (progress) progress->stop();
    if (control) control->stop();
    if (reactor && transport) reactor->remove(transport.get());
    if (transport) transport->abort(Status(Code::kAborted, "the runtime was closed"));
    if (messages_transport) messages_transport->abort(Status(Code::kAborted, "the runtime was closed"));
  }
  // Marks this rank as leaving in every group: see Communicator::close().
  void close_groups() {
    const std::lock_guard lock(groups_mutex);
    world->close();
    for (const std::unique_ptr<Communicator>& group : groups) group->close();
  }
  void end_groups(const Status& why) {
    const std::lock_guard lock(groups_mutex);
    world->abort(why);
    for (const std::unique_ptr<Communicator>& group : groups) group->abort(why);
  }
  Status start(Deadline deadline);
  Result<WorldInfo> find_peers(Deadline deadline);
  Status share_memory(const WorldInfo& world_info);
  Status connect(const Result<FdExchangeListener>& listener, WorldInfo& world_info, Deadline deadline);
  Status start_control();
  void make_reactor();  // if there are other ranks, the transport must exist
  GroupParts parts_of(const std::vector<Rank>& ranks);
  GroupNames names_of(const std::vector<Rank>& ranks, bool is_world) const;
  SelectionTable selection_for(const std::vector<Rank>& ranks) const {
    return profile.tuning.selection(selection, {static_cast<Rank>(ranks.size()), hosts.count(ranks)});
  }
  Status gpus_may_join(const std::vector<Rank>& ranks) const;
  Result<Communicator*> add_group(uint32_t id, const std::vector<Rank>& world_ranks);
  void make_world(SelectionTable selection);

  RuntimeOptions options;
  HostMap hosts;
  std::vector<std::string> addresses;  // by rank
  std::string name;
  std::shared_ptr<FlightRecorder> recorder = std::make_shared<FlightRecorder>(),
                                  messages = std::make_shared<FlightRecorder>();
  std::unique_ptr<LocalPeers> local_peers;      // null: no rank to share memory with
  std::unique_ptr<ShmWakeup> wakeup;            // null: no rank to share memory with
  std::unique_ptr<CoreBalancer> core_balancer;  // null: no rank to share memory with
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Transport> messages_transport;  // `transport`, plus messages of this rank to itself
  std::unique_ptr<Reactor> reactor;
  std::unique_ptr<SharedMemory> memory;  // null: no group uses shared memory
  std::unique_ptr<PlanExecutor> executor;
  std::unique_ptr<Progress> progress;
  std::unique_ptr<ControlThread> control;
  SelectionTable selection;
  Profile profile;
  std::unique_ptr<Communicator> world;
  std::mutex groups_mutex;                            // guards the members below
  std::vector<std::unique_ptr<Communicator>> groups;  // besides the world
  uint32_t reserved_group_ids = 0;  // number of ids taken from this rank's own range: see reserve_group_ids()
  bool shut_down = false;
  std::mutex leaving;   // held while this rank leaves, by shutdown() or abort(); acquired before groups_mutex
  LazyDevices devices;  // destroyed first: devices refer to groups and to their parts
};

GroupNames Runtime::State::names_of(const std::vector<Rank>& ranks, bool is_world) const {
  std::vector<std::string> locations;
  for (const Rank rank : ranks) {
    if (options.size == 1) break;
    const HostMap::Entry& entry = hosts.ranks[static_cast<std::size_t>(rank)];
    locations.push_back((is_world ? "" : "world rank " + std::to_string(rank) + ", ") + "host " +
                        entry.host_name + ", pid " + std::to_string(entry.pid));
  }
  const auto own = std::find(ranks.begin(), ranks.end(), options.rank);
  return GroupNames(static_cast<Rank>(own - ranks.begin()), ranks, std::move(locations));
}

GroupParts Runtime::State::parts_of(const std::vector<Rank>& ranks) {
  GroupParts parts;
  const bool alone = ranks.size() == 1;
  parts.calls = {reactor.get(),
                 alone ? nullptr : executor.get(),
                 alone ? nullptr : control.get(),
                 progress == nullptr ? nullptr : progress->group_ends(),
                 recorder,
                 messages,
                 options.log};
  parts.progress = progress.get();
  if (devices.can_make()) parts.devices = &devices;
  parts.calls.warn_after_s = options.warn_after_s;
  parts.calls.compares = options.check != Check::kOff;
  parts.calls.confirms = options.check == Check::kStrict;
  parts.transport = messages_transport.get();
  const SharedMemory::Use use = memory == nullptr ? SharedMemory::Use{} : memory->of(ranks);
  if (use.executor != nullptr) parts.calls.executor = use.executor;
  parts.shares_memory = use.all;
  parts.domains = use.domains;
  parts.check = options.check;
  parts.hosts = hosts.count(ranks);
  parts.profile = &profile;
  parts.gpus_may_join = gpus_may_join(ranks);
  if (options.interrupted) parts.interrupted = &options.interrupted;
  return parts;
}

Status Runtime::State::gpus_may_join(const std::vector<Rank>& ranks) const {
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (!hosts.ranks[static_cast<std::size_t>(ranks[i])].joins_gpus)
      return Status(Code::kUnsupported,
                    "rank " + std::to_string(i) + " has no GPU, or PYCOLLECTIVE_GPU=staged");
  }
  return Status::ok();
}

// Does nothing if the user selects algorithms. These are plans, which run over connections.
Status Runtime::State::share_memory(const WorldInfo& world_info) {
  if (world_info.selection.to_string() != SelectionTable::defaults().to_string()) return Status::ok();
  SharedMemory::Parts parts{local_peers.get(), wakeup.get(), transport.get(), reactor.get(),
                            core_balancer.get()};
  parts.oversubscribed = more_ranks_than_cores(hosts.local_size);
  parts.single_copy = options.single_copy;
  parts.limits = world_info.profile.tuning.limits();
  PC_ASSIGN_OR_RETURN(memory, SharedMemory::create(hosts, options.rank, parts));
  return Status::ok();
}

void Runtime::State::make_world(SelectionTable table) {
  selection = std::move(table);
  std::vector<Rank> ranks(static_cast<std::size_t>(options.size));
  std::iota(ranks.begin(), ranks.end(), 0);
  world = std::make_unique<Communicator>(parts_of(ranks), kWorldGroup, names_of(ranks, true),
                                         options.timeout_s, selection_for(ranks));
}

Status Runtime::State::start_control() {
  const HostMap::Entry& here = hosts.ranks[static_cast<std::size_t>(options.rank)];
  ControlOptions given;
  given.rank = options.rank;
  given.epoch = options.epoch;
  given.sockets = transport->take_control_sockets();
  for (const HostMap::Entry& entry : hosts.ranks) {
    const bool visible = !here.pid_key.empty() && entry.pid_key == here.pid_key && entry.pid != here.pid;
    given.remote.push_back(entry.host_key != here.host_key);
    given.pids.push_back(visible ? entry.pid : 0);
  }
  given.find_position = options.find_position;
  given.print_request = options.print_request;
  given.print_record = [recorder = recorder, messages = messages, log = options.log] {
    const int64_t now = now_ns();
    std::string text = "the last calls, oldest first:";
    for (const CallRecord& call : last_calls_of(*recorder, *messages)) text += "\n  " + line_of(call, now);
    log.error(text);  // the user requested it, so it is printed at any log level
  };
  PC_ASSIGN_OR_RETURN(control, ControlThread::create(std::move(given)));
  return Status::ok();
}

Result<WorldInfo> Runtime::State::find_peers(Deadline deadline) {
  const Result<FdExchangeListener> listener = options.make_transport
                                                  ? Status(Code::kUnsupported, "the ranks are threads")
                                                  : FdExchangeListener::open();
  const std::string endpoint = listener.is_ok() ? to_text(listener.value().endpoint()) : "";
  PC_ASSIGN_OR_RETURN(WorldInfo world_info,
                      rendezvous(*options.store, options, transport->address(), endpoint, deadline));
  const Status ready = connect(listener, world_info, deadline);
  if (!ready.is_ok()) release_rank(*options.store, options);
  options.store.reset();
  return ready.is_ok() ? Result<WorldInfo>(std::move(world_info)) : ready;
}

Status Runtime::State::connect(const Result<FdExchangeListener>& listener, WorldInfo& world_info,
                               Deadline deadline) {
  const WaitContext context{deadline, nullptr, options.interrupted ? &options.interrupted : nullptr};
  PC_ASSIGN_OR_RETURN(local_peers, find_local_peers(*options.store, options, listener, world_info, context));
  if (local_peers != nullptr) {
    PC_ASSIGN_OR_RETURN(wakeup, ShmWakeup::create(*local_peers, options.rank, options.size));
    core_balancer = std::make_unique<CoreBalancer>(*wakeup);
    const ShmOptions shm{.rank = options.rank,
                         .size = options.size,
                         .epoch = options.epoch,
                         .oversubscribed = more_ranks_than_cores(world_info.hosts.local_size),
                         .core = core_balancer.get()};
    PC_ASSIGN_OR_RETURN(transport, make_shm_transport(shm, std::move(transport), *local_peers, *wakeup));
  }
  return transport->connect(world_info.addresses, context);
}

void Runtime::State::make_reactor() {
  messages_transport = make_loopback_transport(options.rank, transport.get());
  reactor = std::make_unique<Reactor>(more_ranks_than_cores(hosts.local_size));
  progress = std::make_unique<Progress>(*reactor);
}

Status Runtime::State::start(Deadline deadline) {
  if (options.size == 1) {
    PC_ASSIGN_OR_RETURN(SelectionTable table, SelectionTable::parse(options.tune));
    PC_ASSIGN_OR_RETURN(HostMap::Entry here, this_process());
    here.joins_gpus = options.joins_gpus;
    here.why_alone = "the world has one rank";
    hosts.ranks.push_back(std::move(here));
    make_reactor();
    make_world(std::move(table));
    return Status::ok();
  }
  PC_ASSIGN_OR_RETURN(transport, pc::make_transport(options));
  PC_ASSIGN_OR_RETURN(WorldInfo world_info, find_peers(deadline));
  options.log.info([&] { return describe(options, *transport, world_info); });
  hosts = std::move(world_info.hosts);
  addresses = std::move(world_info.addresses);
  name = std::move(world_info.world);
  options.check = world_info.check;
  make_reactor();
  PC_TRY(reactor->add(transport.get()));
  executor = std::make_unique<PlanExecutor>(*transport, *reactor);
  PC_TRY(share_memory(world_info));
  PC_TRY(start_control());
  profile = std::move(world_info.profile);
  make_world(std::move(world_info.selection));
  return control->start();
}

Runtime::Runtime() = default;
Runtime::~Runtime() = default;

Result<std::unique_ptr<Runtime>> Runtime::create(RuntimeOptions options, Deadline deadline) {
  const TimePoint began = now();
  PC_TRY(check(options));
  options.log = options.log.with_rank(options.rank);
  std::unique_ptr<Runtime> runtime(new Runtime());
  runtime->state_ = std::make_unique<State>(std::move(options), *runtime);
  State& state = *runtime->state_;
  const Status started = state.start(deadline);
  if (started.is_ok()) return runtime;
  const std::chrono::duration<double> elapsed = now() - began;
  return started.with_rank(state.options.rank).with_operation("init").with_elapsed(elapsed.count());
}

Communicator& Runtime::world() { return *state_->world; }
Result<Communicator*> Runtime::make_group(uint32_t id, const std::vector<Rank>& world_ranks) {
  State& state = *state_;
  const Rank size = state.options.size;
  std::vector<bool> seen(static_cast<std::size_t>(size));
  for (const Rank rank : world_ranks) {
    if (rank < 0 || rank >= size)
      return Status(Code::kInvalidArgument, "rank " + std::to_string(rank) +
                                                " is no rank of the world: 0 to " + std::to_string(size - 1));
    if (seen[static_cast<std::size_t>(rank)])
      return Status(Code::kInvalidArgument, "rank " + std::to_string(rank) + " is in the group twice");
    seen[static_cast<std::size_t>(rank)] = true;
  }
  if (!seen[static_cast<std::size_t>(state.options.rank)])
    return Status(Code::kInvalidArgument,
                  "this rank, " + std::to_string(state.options.rank) + ", is not in the group");
  const std::lock_guard lock(state.groups_mutex);
  for (const std::unique_ptr<Communicator>& each : state.groups) {
    if (each->id() == id) return Status(Code::kInternal, "the group id " + std::to_string(id) + " is in use");
  }
  return state.add_group(id, world_ranks);
}

// Each rank reserves ids from a range of its own.
Result<uint32_t> Runtime::reserve_group_ids(uint32_t count) {
  State& state = *state_;
  const uint32_t range = (kMostGroupIds - 1) / static_cast<uint32_t>(state.options.size);
  const std::lock_guard lock(state.groups_mutex);
  if (count > range - state.reserved_group_ids)
    return Status(Code::kUnsupported,
                  "this rank has given numbers to " + std::to_string(range) + " groups, and has no more");
  const uint32_t first = kWorldGroup + 1 + static_cast<uint32_t>(state.options.rank) * range +
                         std::exchange(state.reserved_group_ids, state.reserved_group_ids + count);
  return first;
}

LazyDevices& Runtime::devices() { return state_->devices; }

void Runtime::close_group(const Communicator& group) {
  State& state = *state_;
  if (state.devices.keep(group)) return;
  std::vector<std::unique_ptr<Communicator>> closed;  // declared before the lock: destroyed after unlock
  const std::lock_guard lock(state.groups_mutex);
  if (state.shut_down) return;  // the group ends with the runtime
  const auto found = std::find_if(state.groups.begin(), state.groups.end(),
                                  [&](const auto& each) { return each.get() == &group; });
  if (found == state.groups.end()) return;
  const uint32_t id = (*found)->id();
  std::erase_if(state.groups, [&](std::unique_ptr<Communicator>& each) {
    const bool goes = (each->id() & ~kInternalBit) == id;
    if (goes) closed.push_back(std::move(each));
    return goes;
  });
}

Result<Communicator*> Runtime::make_internal_group(const Communicator& group) {
  State& state = *state_;
  const std::lock_guard lock(state.groups_mutex);
  uint32_t id = kWorldGroup;
  for (const std::unique_ptr<Communicator>& each : state.groups) {
    if (each.get() == &group) id = each->id();
  }
  id |= kInternalBit;
  for (const std::unique_ptr<Communicator>& each : state.groups) {
    if (each->id() == id) return Status(Code::kInternal, "there is a group beside this one already");
  }
  const std::span<const Rank> ranks = group.world_ranks();
  return state.add_group(id, {ranks.begin(), ranks.end()});
}

Result<Communicator*> Runtime::make_channel(Rank from, Rank to) {
  if (std::max(from, to) >= kMostInChannels)
    return Status(Code::kUnsupported,
                  "ranks above " + std::to_string(kMostInChannels - 1) + " have no channels");
  const uint32_t id = kChannelBit | static_cast<uint32_t>(from) * kMostInChannels | static_cast<uint32_t>(to);
  State& state = *state_;
  const std::lock_guard lock(state.groups_mutex);
  for (const std::unique_ptr<Communicator>& each : state.groups) {
    if (each->id() == id) return Status(Code::kUnsupported, "there is that channel already");
  }
  return state.add_group(id, {from, to});
}

// The caller holds groups_mutex.
Result<Communicator*> Runtime::State::add_group(uint32_t id, const std::vector<Rank>& world_ranks) {
  if (shut_down) return Status(Code::kNotInitialized, "the world was shut down");
  groups.push_back(std::make_unique<Communicator>(parts_of(world_ranks), id, names_of(world_ranks, false),
                                                  options.timeout_s, selection_for(world_ranks)));
  return groups.back().get();
}

std::size_t Runtime::group_count() const {
  const std::lock_guard lock(state_->groups_mutex);
  return static_cast<std::size_t>(std::count_if(state_->groups.begin(), state_->groups.end(),
                                                [](const std::unique_ptr<Communicator>& each) {
                                                  return (each->id() & (kInternalBit | kChannelBit)) == 0;
                                                }));
}

const std::vector<std::string>& Runtime::addresses() const { return state_->addresses; }
const HostMap& Runtime::hosts() const { return state_->hosts; }
shm::Heap* Runtime::heap() { return state_->memory == nullptr ? nullptr : state_->memory->heap(); }
const std::string& Runtime::name() const { return state_->name; }

std::vector<CallRecord> Runtime::last_calls() const {
  return last_calls_of(*state_->recorder, *state_->messages);
}

Status Runtime::shutdown(Deadline deadline, Status* on_devices) {
  State& state = *state_;
  const std::lock_guard leaving(state.leaving);
  const double seconds = std::max(deadline.remaining_s(), 0.0);
  Status closed = state.devices.close(seconds);  // first, because calls on devices may create groups
  if (on_devices != nullptr) *on_devices = std::exchange(closed, Status());
  deadline = Deadline::after(seconds);
  {
    const std::lock_guard lock(state.groups_mutex);
    if (std::exchange(state.shut_down, true)) return Status::ok();
  }
  if (state.world->ended()) {  // cannot wait for the other ranks, but sends a goodbye
    state.close_groups();
    if (state.control) state.control->send_goodbye();
    state.close();
    return closed;
  }
  if (state.options.before_leaving) state.options.before_leaving();
  Status ended = state.world->leave(std::max(deadline.remaining_s(), 0.0));
  state.close_groups();
  if (state.transport) {
    // Ranks that still need this rank must receive a goodbye, not a broken connection, even if they
    // have not called shutdown().
    state.transport->shutdown(
        ended.is_ok() ? deadline : Deadline::after(std::clamp(deadline.remaining_s(), 0.0, kGoodbyeS)));
    state.control->send_goodbye();
  }
  state.end_groups(Status(Code::kNotInitialized, "the runtime was shut down"));
  state.close();
  return ended.is_ok() ? closed : ended;
}

void Runtime::abort(const Status& why) {
  State& state = *state_;
  state.devices.abort(why);
  state.end_groups(why);  // ends a shutdown() that waits for the other ranks
  const std::lock_guard leaving(state.leaving);
  {
    const std::lock_guard lock(state.groups_mutex);
    state.shut_down = true;
  }
  state.end(why);
}

void Runtime::close_in_child() noexcept {
  if (state_->transport) state_->transport->close_in_child();
  if (state_->reactor) state_->reactor->close_in_child();
  if (state_->control) state_->control->close_in_child();
  if (state_->local_peers) state_->local_peers->close_in_child();
  if (state_->memory) state_->memory->close_in_child();
}

}  // namespace pc
