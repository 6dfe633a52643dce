// A FAKE of NCCL, for tests: it has the functions of NCCL version FAKE_NCCL_VERSION, and no GPU.
// Ranks are communicators of this process with one unique id; their arrays are host memory. The
// last rank to issue a call executes it for all, immediately, unless a test makes calls run in the
// streams of the fake driver (streams.h). The fake records calls and violations: calling into a
// communicator that has not settled, from two threads at once, or after its end; and issuing calls
// on a non-blocking communicator, for which the real NCCL starts a thread each time.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "comms.h"
#include "movement.h"
#include "script.h"
#include "streams.h"

using namespace fake_nccl;

namespace {

const std::byte* from(const void* in) { return static_cast<const std::byte*>(in); }
std::byte* into(void* out) { return static_cast<std::byte*>(out); }
// NCCL starts a thread for each group of calls on a non-blocking communicator.
void check_blocks(const Comm& comm) {
  if (!comm.blocking && !fake().never_blocks) violation("a call on a non-blocking communicator");
}

// Stores the calls that were issued outside a group in `into`, as one operation.
int issue_now(Comm* comm, Call call, std::unique_ptr<Operation>& into) {
  Entry entry(comm, call.kind);
  if (entry.code() != kSuccess) return entry.code();
  if (call.op >= kFirstOwn) {
    const auto own = comm->ops.find(call.op);
    if (own == comm->ops.end() || own->second.first != call.dtype) return kInvalidArgument;
    call.factor = own->second.second;
  }
  if (group().depth == 0) {
    check_blocks(*comm);
    entry.note(call.kind);
    comm->group.push_back(std::move(call));
    into = take_issued(*comm);
    return entry.begun();
  }
  std::vector<Comm*>& comms = group().comms;
  if (std::find(comms.begin(), comms.end(), comm) == comms.end()) {
    comms.push_back(comm);
    comm->calls += comm->calls.empty() ? "[" : " [";
  }
  const bool message = call.kind == "Send" || call.kind == "Recv";
  comm->calls += (comm->calls.back() == '[' ? "" : " ") + call.kind +
                 (message ? "(" + std::to_string(call.root) + ")" : "");
  comm->group.push_back(std::move(call));
  return kSuccess;
}

int issue(Comm* comm, Call call, void* stream) {
  call.stream = stream;
  std::unique_ptr<Operation> operation;
  const int answer = issue_now(comm, std::move(call), operation);
  queue(std::move(operation));
  return answer;
}

Comm* new_comm(const std::shared_ptr<World>& world, int rank, const Settings& settings) {
  auto comm = std::make_unique<Comm>();
  comm->world = world;
  comm->rank = rank;
  comm->name = settings.name;
  comm->blocking = settings.blocking;
  world->members.push_back(comm.get());
  fake().comms.push_back(std::move(comm));
  return fake().comms.back().get();
}

// Reads a configuration as NCCL's parseCommConfig does.
int read_config(const void* config, Settings& settings) {
  struct Known {
    std::size_t size;
    unsigned magic, version;
    int blocking, cga, min_ctas, max_ctas;
    const char* net;
    int split_share, traffic_class;
    const char* name;
    int rest[4];
  } known = {};
  constexpr std::size_t own = FAKE_NCCL_VERSION >= 22700 ? sizeof(Known) : 48;
  std::memcpy(&known, config, 8);
  std::memcpy(&known, config, std::min(known.size, own));
  if (known.magic != 0xcafebeef || known.version < 21400 || known.size < 48) return kInvalidArgument;
  settings.blocking = known.blocking == 1 && !fake().never_blocks;
  if (known.version >= 22602 && known.traffic_class != INT32_MIN) violation("garbage for trafficClass");
  if (known.version >= 22700 && own > 48) settings.name = known.name;
  return kSuccess;
}

// Computes the rank within its color, once all ranks of the parent have given theirs.
void split_world(Comm& comm, const Share& share, Comm** slot) {
  World& world = *comm.world;
  const int number = comm.splits++;
  comm.child_slots.emplace_back(number, slot);
  std::vector<Share>& all = world.splits[number];
  all.push_back(share);
  if (all.size() < static_cast<std::size_t>(world.size)) return;
  std::map<int, std::vector<Share>> colors;
  for (const Share& each : all) colors[each.color].push_back(each);
  for (auto& [color, members] : colors) {
    std::sort(members.begin(), members.end(), [](const Share& a, const Share& b) {
      return std::pair(a.key, a.parent->rank) < std::pair(b.key, b.parent->rank);
    });
    const auto child = std::make_shared<World>();
    child->size = child->joined = static_cast<int>(members.size());
    child->spoiled = world.spoiled;
    for (int place = 0; place < child->size; ++place) {
      const Share& member = members[static_cast<std::size_t>(place)];
      Comm* const made = color < 0 ? nullptr : new_comm(child, place, member.settings);
      member.parent->children.push_back(made);
      if (made == nullptr) continue;
      made->initialized = true;
      made->calls = "child(" + std::to_string(place) + "/" + std::to_string(child->size) + ")";
    }
  }
  fake().changed.notify_all();
}

// A split completes when all ranks have taken part. NCCL then writes the requested communicators.
void write_children(Comm& comm) {
  while (!comm.child_slots.empty() && !comm.children.empty()) {
    *comm.child_slots.front().second = comm.children.front();
    comm.child_slots.erase(comm.child_slots.begin());
    comm.children.erase(comm.children.begin());
  }
}

}  // namespace

#define PC_EXPORT extern "C" __attribute__((visibility("default")))

PC_EXPORT int ncclGetVersion(int* version) {
  *version = FAKE_NCCL_VERSION;
  return kSuccess;
}
PC_EXPORT int ncclGetUniqueId(UniqueId* id) {
  Fake& all = fake();
  const std::lock_guard lock(all.mutex);
  if (const int code = scripted_failure("GetUniqueId", nullptr); code != kSuccess) return code;
  *id = {};
  const std::string text = "world " + std::to_string(++all.ids);
  std::copy(text.begin(), text.end(), id->bytes);
  return kSuccess;
}
PC_EXPORT const char* ncclGetErrorString(int code) {
  return code == 2 ? "unhandled system error" : code == kInvalidArgument ? "invalid argument" : "fake error";
}
PC_EXPORT const char* ncclGetLastError(Comm*) { return "the fake was scripted to"; }

PC_EXPORT int ncclCommInitRankConfig(Comm** into, int ranks, UniqueId id, int rank, void* config) {
  Fake& all = fake();
  std::unique_lock lock(all.mutex);
  block_if_requested(lock, "CommInitRankConfig", nullptr);
  *into = nullptr;
  if (const int code = scripted_failure("CommInitRankConfig", nullptr); code != kSuccess) return code;
  std::shared_ptr<World>& world = all.worlds[static_cast<const char*>(id.bytes)];
  if (world == nullptr) world = std::make_shared<World>();
  world->size = ranks;
  ++world->joined;
  const char* const spoiled = std::getenv("FAKE_NCCL_SPOILS");
  world->spoiled = spoiled != nullptr && std::string(spoiled) == id.bytes;
  Settings settings;
  if (const int code = read_config(config, settings); code != kSuccess) return code;
  if (settings.blocking) violation("a communicator that blocks until all ranks have joined");
  Comm* const comm = new_comm(world, rank, settings);
  comm->calls = "init(" + std::to_string(rank) + "/" + std::to_string(ranks) + ")";
  comm->queries = all.queries;
  comm->hangs = all.init_hangs;
  comm->initialized = !all.init_waits;
  *into = comm;
  return settled(*comm) ? kSuccess : kInProgress;
}
PC_EXPORT int ncclCommGetAsyncError(Comm* comm, int* code) {
  const std::lock_guard lock(fake().mutex);
  if (comm == nullptr) return kInvalidArgument;
  if (comm->dead) {
    violation("GetAsyncError on a communicator that has ended");
    return kInvalidArgument;
  }
  if (const int refusal = scripted_failure("CommGetAsyncError", comm); refusal != kSuccess) return refusal;
  if (comm->queries > 0) --comm->queries;
  const bool child_missing = !comm->child_slots.empty() && comm->children.empty();
  *code = comm->async != kSuccess ? comm->async : settled(*comm) && !child_missing ? kSuccess : kInProgress;
  if (*code == kSuccess) {
    comm->initialized = true;
    write_children(*comm);
  }
  return kSuccess;
}
PC_EXPORT int ncclCommFinalize(Comm* comm) {
  Entry entry(comm, "CommFinalize");
  if (entry.code() != kSuccess) return entry.code();
  entry.note("Finalize");
  if (!comm->ops.empty()) violation("operations were left when their communicator ended");
  return entry.begun();
}
PC_EXPORT int ncclCommDestroy(Comm* comm) {
  Entry entry(comm, "CommDestroy");
  if (entry.code() != kSuccess) return entry.code();
  entry.note("Destroy");
  comm->dead = true;
  return kSuccess;
}
PC_EXPORT int ncclCommAbort(Comm* comm) {
  Fake& all = fake();
  std::unique_lock lock(all.mutex);
  if (comm == nullptr) return kSuccess;
  block_if_requested(lock, "CommAbort", nullptr);
  if (comm->inside.load() != comm->stuck) violation("Abort while another thread is inside and not stuck");
  if (comm->dead) violation("Abort of a communicator that has ended");
  if (const int code = scripted_failure("CommAbort", nullptr); code != kSuccess) return code;
  if (group().depth > 0 && FAKE_NCCL_VERSION < 22203) violation("Abort inside a group");
  comm->calls += group().depth > 0 ? " [Abort]" : " Abort";
  comm->dead = comm->aborted = comm->life->dead = true;
  comm->group.clear();
  for (auto& [number, calls] : comm->world->pending)
    std::erase_if(calls, [&](const Arrival& each) { return each.rank == comm->rank; });
  for (auto& [way, waiting] : comm->world->sends)
    if (way.first == comm->rank) waiting.clear();
  for (auto& [way, waiting] : comm->world->recvs)
    if (way.second == comm->rank) waiting.clear();
  for (auto& [split, waiting] : comm->world->splits)
    std::erase_if(waiting, [&](const Share& each) { return each.parent == comm; });
  all.changed.notify_all();
  // threads that are stuck inside return immediately
  all.changed.wait(lock, [&] { return comm->inside.load() == 0; });
  if (auto* const hook = all.on_abort; hook != nullptr) {
    void* const data = all.on_abort_data;
    lock.unlock();
    hook(data);
  }
  return kSuccess;
}
PC_EXPORT int ncclCommSplit(Comm* comm, int color, int key, Comm** into, void* config) {
  Entry entry(comm, "CommSplit");
  *into = nullptr;
  if (entry.code() != kSuccess) return entry.code();
  Share share{comm, color, key, {}};
  if (const int code = read_config(config, share.settings); code != kSuccess) return code;
  if (comm->life->busy || comm->life->issued != comm->life->next)
    violation("Split while operations are under way");
  entry.note("Split(" + std::to_string(color) + ")");
  split_world(*comm, share, into);
  if (comm->blocking) {
    if (!entry.wait([&] { return !comm->children.empty(); })) return kInternal;
    write_children(*comm);
    return kSuccess;
  }
  comm->queries = std::max(1, fake().queries);
  // NCCL returns this immediately, also for a non-blocking communicator, and continues in the
  // background
  return kSuccess;
}
#if FAKE_NCCL_VERSION >= 22703
// Makes a world of the ranks that are not excluded. Each of them makes it without waiting for the
// others.
PC_EXPORT int ncclCommShrink(Comm* comm, int* excluded, int count, Comm** into, void* config, int flags) {
  Entry entry(comm, "CommShrink");
  *into = nullptr;
  if (entry.code() != kSuccess) return entry.code();
  if (comm->async != kSuccess) return kInvalidArgument;
  Settings settings;
  if (const int code = read_config(config, settings); code != kSuccess) return code;
  std::sort(excluded, excluded + count);
  if (std::binary_search(excluded, excluded + count, comm->rank)) return kInvalidArgument;
  std::string key = "shrunk";
  for (int i = 0; i < count; ++i) key += " " + std::to_string(excluded[i]);
  std::shared_ptr<World>& world = fake().worlds[key];
  if (world == nullptr) world = std::make_shared<World>();
  world->size = comm->world->size - count;
  ++world->joined;
  const auto before = std::lower_bound(excluded, excluded + count, comm->rank) - excluded;
  Comm* const child = new_comm(world, comm->rank - static_cast<int>(before), settings);
  child->initialized = true;
  child->calls = "child(" + std::to_string(child->rank) + "/" + std::to_string(world->size) + ")";
  entry.note(flags == 1 ? "Shrink(abort)" : "Shrink");
  comm->child_slots.emplace_back(0, into);
  comm->children.push_back(child);
  if (comm->blocking) {
    write_children(*comm);
    return kSuccess;
  }
  comm->queries = std::max(1, fake().queries);
  return kSuccess;  // as in ncclCommSplit
}
PC_EXPORT int ncclCommWindowRegister(Comm*, void*, std::size_t, void**, int) { return kInternal; }
PC_EXPORT int ncclCommWindowDeregister(Comm*, void*) { return kInternal; }
#endif
#if FAKE_NCCL_VERSION >= 22807
PC_EXPORT int ncclCommRevoke(Comm*, int) { return kInternal; }
#endif
PC_EXPORT int ncclCommCount(Comm* comm, int* count) {
  Entry entry(comm, "CommCount");
  if (entry.code() == kSuccess) *count = comm->world->size;
  return entry.code();
}
PC_EXPORT int ncclCommUserRank(Comm* comm, int* rank) {
  Entry entry(comm, "CommUserRank");
  if (entry.code() == kSuccess) *rank = comm->rank;
  return entry.code();
}
PC_EXPORT int ncclCommCuDevice(Comm* comm, int* device) {
  Entry entry(comm, "CommCuDevice");
  if (entry.code() == kSuccess) *device = 0;
  return entry.code();
}

PC_EXPORT int ncclGroupStart() {
  const std::lock_guard lock(fake().mutex);
  if (const int code = scripted_failure("GroupStart", nullptr); code != kSuccess) return code;
  ++group().depth;
  return kSuccess;
}
PC_EXPORT int ncclGroupEnd() {
  std::unique_lock lock(fake().mutex);
  Group& own = group();
  if (own.depth == 0) {
    violation("GroupEnd without GroupStart");
    return kInvalidUsage;
  }
  --own.depth;
  Comm* const one = own.comms.empty() ? nullptr : own.comms.front();
  if (one != nullptr && one->inside.fetch_add(1) != 0) violation("GroupEnd while another thread is inside");
  block_if_requested(lock, "GroupEnd", one);
  std::vector<std::unique_ptr<Operation>> operations;
  const int failure = scripted_failure("GroupEnd", one);
  int answer = failure;
  for (Comm* const comm : std::exchange(own.comms, {})) {
    comm->calls += "]";
    if (comm->blocking && fake().calls_hang && !comm->aborted) stay(lock, comm, [] { return false; });
    if (failure != kSuccess || comm->aborted) {
      comm->group.clear();
      if (failure == kSuccess) answer = kInternal;
      continue;
    }
    check_blocks(*comm);
    operations.push_back(take_issued(*comm));
    comm->queries = comm->blocking ? 0 : fake().queries;
    comm->hangs = !comm->blocking && fake().calls_hang;
    if (!settled(*comm)) answer = kInProgress;
  }
  if (one != nullptr) leave(*one);
  lock.unlock();
  for (std::unique_ptr<Operation>& each : operations) queue(std::move(each));
  return answer;
}

PC_EXPORT int ncclAllReduce(const void* in, void* out, std::size_t count, int dtype, int op, Comm* comm,
                            void* stream) {
  return issue(comm, {"AllReduce", from(in), into(out), count, dtype, op, 0}, stream);
}
PC_EXPORT int ncclBroadcast(const void* in, void* out, std::size_t count, int dtype, int root, Comm* comm,
                            void* stream) {
  return issue(comm, {"Broadcast", from(in), into(out), count, dtype, 0, root}, stream);
}
PC_EXPORT int ncclReduce(const void* in, void* out, std::size_t count, int dtype, int op, int root,
                         Comm* comm, void* stream) {
  return issue(comm, {"Reduce", from(in), into(out), count, dtype, op, root}, stream);
}
PC_EXPORT int ncclAllGather(const void* in, void* out, std::size_t count, int dtype, Comm* comm,
                            void* stream) {
  return issue(comm, {"AllGather", from(in), into(out), count, dtype, 0, 0}, stream);
}
PC_EXPORT int ncclReduceScatter(const void* in, void* out, std::size_t count, int dtype, int op, Comm* comm,
                                void* stream) {
  return issue(comm, {"ReduceScatter", from(in), into(out), count, dtype, op, 0}, stream);
}
#if FAKE_NCCL_VERSION >= 22803
PC_EXPORT int ncclAlltoAll(const void* in, void* out, std::size_t count, int dtype, Comm* comm,
                           void* stream) {
  return issue(comm, {"AlltoAll", from(in), into(out), count, dtype, 0, 0}, stream);
}
PC_EXPORT int ncclGather(const void* in, void* out, std::size_t count, int dtype, int root, Comm* comm,
                         void* stream) {
  return issue(comm, {"Gather", from(in), into(out), count, dtype, 0, root}, stream);
}
PC_EXPORT int ncclScatter(const void* in, void* out, std::size_t count, int dtype, int root, Comm* comm,
                          void* stream) {
  return issue(comm, {"Scatter", from(in), into(out), count, dtype, 0, root}, stream);
}
#endif
PC_EXPORT int ncclSend(const void* in, std::size_t count, int dtype, int peer, Comm* comm, void* stream) {
  return issue(comm, {"Send", from(in), nullptr, count, dtype, 0, peer}, stream);
}
PC_EXPORT int ncclRecv(void* out, std::size_t count, int dtype, int peer, Comm* comm, void* stream) {
  return issue(comm, {"Recv", nullptr, into(out), count, dtype, 0, peer}, stream);
}
PC_EXPORT int ncclRedOpCreatePreMulSum(int* op, void* scalar, int dtype, int residence, Comm* comm) {
  Entry entry(comm, "RedOpCreatePreMulSum");
  if (entry.code() != kSuccess) return entry.code();
  if (residence != 1) violation("a scalar that is not the host's");
  *op = comm->next_op++;
  auto& [its_dtype, factor] = comm->ops[*op];
  its_dtype = dtype;
  std::memcpy(factor.data(), scalar, kSizes[static_cast<std::size_t>(dtype)]);
  entry.note("CreateOp");
  return kSuccess;
}
PC_EXPORT int ncclRedOpDestroy(int op, Comm* comm) {
  Entry entry(comm, "RedOpDestroy");
  if (entry.code() != kSuccess) return entry.code();
  entry.note("DestroyOp");
  if (comm->ops.erase(op) == 0) return kInvalidArgument;
  return kSuccess;
}
#if FAKE_NCCL_VERSION >= 21901
PC_EXPORT int ncclMemAlloc(void**, std::size_t) { return 1; }
PC_EXPORT int ncclMemFree(void*) { return 1; }
PC_EXPORT int ncclCommRegister(Comm*, void*, std::size_t, void**) { return kInternal; }
PC_EXPORT int ncclCommDeregister(Comm*, void*) { return kInternal; }
#endif

namespace {

void reset() {
  Fake& all = fake();
  const std::lock_guard lock(all.mutex);
  for (auto& comm : all.comms) {
    comm->life->dead = true;
    comm->world.reset();
    if (!comm->dead) all.forgotten.push_back(std::move(comm));
  }
  all.comms.clear();
  all.worlds.clear();
  all.failures.clear();
  all.blocks.clear();
  all.queries = 0;
  all.init_waits = all.init_hangs = all.calls_hang = all.never_blocks = false;
  all.violations.clear();
  all.enqueue = nullptr;
}
void run_in_streams(void* enqueue) {
  const std::lock_guard lock(fake().mutex);
  fake().enqueue = reinterpret_cast<decltype(fake().enqueue)>(enqueue);
}
const char* record() {
  Fake& all = fake();
  const std::lock_guard lock(all.mutex);
  all.answer.clear();
  for (const auto& comm : all.comms) all.answer += comm->calls + "\n";
  return all.answer.c_str();
}
template <class Set>
void set(Set&& change) {
  const std::lock_guard lock(fake().mutex);
  change(fake());
}

}  // namespace

extern "C" {
__attribute__((visibility("default"))) extern const pc::testing::FakeNccl fake_nccl_script;
}
PC_EXPORT void fake_nccl_run_in_streams(void* enqueue) { run_in_streams(enqueue); }  // for tests in Python
PC_EXPORT const char* fake_nccl_record() { return record(); }
PC_EXPORT void fake_nccl_hang_calls(int yes) {
  set([&](Fake& all) { all.calls_hang = yes != 0; });
}
PC_EXPORT int fake_nccl_blocked() {
  const std::lock_guard lock(fake().mutex);
  return fake().blocked;
}
const pc::testing::FakeNccl fake_nccl_script = {
    reset,
    run_in_streams,
    [](int queries) { set([&](Fake& all) { all.queries = queries; }); },
    [](int yes) { set([&](Fake& all) { all.init_waits = yes != 0; }); },
    [](int yes) { set([&](Fake& all) { all.init_hangs = yes != 0; }); },
    [](int yes) { set([&](Fake& all) { all.calls_hang = yes != 0; }); },
    [](int yes) { set([&](Fake& all) { all.never_blocks = yes != 0; }); },
    [](void* comm, int code) {
      set([&](Fake& all) {
        for (const auto& each : all.comms)
          if (comm == nullptr || comm == each.get()) each->async = code;
      });
    },
    [](const char* call, int code, int sticky) {
      set([&](Fake& all) { all.failures.push_back({call, code, sticky != 0}); });
    },
    [](const char* call) { set([&](Fake& all) { all.blocks.emplace_back(call); }); },
    [] {
      const std::lock_guard lock(fake().mutex);
      return fake().blocked;
    },
    [] {
      set([](Fake& all) { ++all.generation; });
      fake().changed.notify_all();
    },
    [](void** comm) {
      const std::lock_guard lock(fake().mutex);
      if (fake().comms.empty()) return 0;
      *comm = fake().comms.back().get();
      return 1;
    },
    [](void* comm) {
      const std::lock_guard lock(fake().mutex);
      fake().answer = static_cast<Comm*>(comm)->calls;
      return fake().answer.c_str();
    },
    record,
    [] {
      const std::lock_guard lock(fake().mutex);
      fake().answer = fake().violations;
      return fake().answer.c_str();
    },
    [](void (*hook)(void*), void* data) {
      set([&](Fake& all) { all.on_abort = hook, all.on_abort_data = data; });
    },
    [] {
      const std::lock_guard lock(fake().mutex);
      return static_cast<int>(std::count_if(fake().comms.begin(), fake().comms.end(),
                                            [](const auto& each) { return !each->dead; }));
    },
};
