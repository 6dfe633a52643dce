#include "engine/shm/hier/hier_executor.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include "engine/line_work.h"
#include "engine/plan_run_for.h"
#include "engine/shm/hier/island_run.h"
#include "kernels/reduce.h"

namespace pc::shm {
namespace {

IslandMembers members_of(const HierExecutor::Parts& parts, const Launch& launch) {
  const std::span worlds(launch.world_ranks, static_cast<std::size_t>(launch.size));
  std::vector<Rank> islands;
  for (const Rank world : worlds) islands.push_back(parts.island_of[static_cast<std::size_t>(world)]);
  GroupTable table(islands, launch.rank);
  IslandMembers members{std::move(table), {}, {}, {}};
  members.shape = members.table.shape();
  for (Rank place = 0; place < members.shape.least; ++place)
    members.columns.push_back(members.table.column(place));
  for (const Rank rank : members.table.members())
    members.worlds.push_back(worlds[static_cast<std::size_t>(rank)]);
  return members;
}

}  // namespace

const Algorithm& by_islands(Collective collective) {
  static const std::array<Algorithm, kCollectiveCount> kRows = [] {
    std::array<Algorithm, kCollectiveCount> rows{};
    for (int i = 0; i < kCollectiveCount; ++i) {
      Algorithm& row = rows[static_cast<std::size_t>(i)];
      row.name = "hierarchical";
      row.collective = static_cast<Collective>(i);
      row.supports = [](const Shape&) { return true; };
      row.build = nullptr;
      row.source = "docs/shared-memory.md";
      row.summary = "shared memory on each host, plans between the hosts";
      row.pipelines = Pipelines::kNot;
      row.fixed_order = true;
      row.name_hash = fnv1a(row.name);
    }
    return rows;
  }();
  return kRows[static_cast<std::size_t>(collective)];
}

struct HierExecutor::State {
  struct HierGroup {
    HierGroup(const HierExecutor::Parts& parts, const Launch& launch)
        : members(members_of(parts, launch)),
          group(*parts.host, launch.group, members.table.own_place(), members.worlds,
                limits_for(parts.limits, static_cast<std::size_t>(members.shape.most)),
                members.table.members()),
          waiter(parts.crowded, Waiter::kSockets, parts.core),
          line(*parts.reactor, launch.group,
               [transport = parts.transport, id = launch.group](uint64_t sequence) {
                 transport->discard(id, sequence);
               }) {}
    const IslandMembers members;
    Group group;     // the baton's
    Waiter waiter;   // likewise
    GroupLine line;  // its runs use the rest
  };

  explicit State(Parts given) : parts(std::move(given)) {}
  HierGroup* find(uint32_t id) {  // mutex held
    const auto known =
        std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g->line.group() == id; });
    return known == groups.end() ? nullptr : known->get();
  }
  HierGroup& group_of(const Launch& launch);

  const Parts parts;
  PlanCache plans;
  std::atomic<HierGroup*> used_last{nullptr};      // of `groups`, most often the right one
  std::mutex mutex;                                // guards what follows
  std::vector<std::unique_ptr<HierGroup>> groups;  // few, and they stay
  std::map<uint32_t, Status> ended_groups;
  std::vector<Rank> left;  // of the world
  Status aborted;
};

HierExecutor::State::HierGroup& HierExecutor::State::group_of(const Launch& launch) {
  HierGroup* const recent = used_last.load(std::memory_order_acquire);
  if (recent != nullptr && recent->line.group() == launch.group) return *recent;
  const std::lock_guard<std::mutex> lock(mutex);
  HierGroup* group = find(launch.group);
  if (group == nullptr) {
    groups.push_back(std::make_unique<HierGroup>(parts, launch));
    group = groups.back().get();
    for (const Rank world : left) group->group.note_left(world);
    const auto ended = ended_groups.find(launch.group);
    if (!aborted.is_ok()) group->line.abort(aborted);
    if (ended != ended_groups.end()) group->line.abort(ended->second);
  }
  used_last.store(group, std::memory_order_release);
  return *group;
}

HierExecutor::HierExecutor(Parts parts) : state_(std::make_shared<State>(std::move(parts))) {}
HierExecutor::~HierExecutor() { abort(Status(Code::kAborted, "the executor was closed")); }

bool HierExecutor::supports(const Request& request, Rank) const {
  if (request.in.device.type != DeviceType::kCpu || request.out.device.type != DeviceType::kCpu) return false;
  return !reduces(request.collective) || can_reduce(request.in.dtype, request.op);
}

Result<std::unique_ptr<Work>> HierExecutor::launch(const Request& request, const Launch& launch) {
  State::HierGroup& group = state_->group_of(launch);
  auto work = std::make_unique<LineWork>(state_, group.line);  // first: once it runs, somebody must own it
  std::unique_ptr<Run> run;
  if (launch.algorithm == &by_islands(request.collective)) {
    run = group.line.take_idle(
        [](const Run& idle) { return dynamic_cast<const IslandRun*>(&idle) != nullptr; });
    if (run == nullptr) {
      run = std::make_unique<IslandRun>(*state_->parts.host, group.group, group.waiter, group.members,
                                        *state_->parts.transport, state_->plans, state_->parts.choose);
    }
    static_cast<IslandRun&>(*run).prepare_call(request, launch);
  } else {
    PC_ASSIGN_OR_RETURN(std::unique_ptr<PlanRun> plan_run,
                        plan_run_for(request, launch, *state_->parts.transport, group.line, state_->plans));
    plan_run->prepare(request, launch);
    run = std::move(plan_run);
  }
  group.line.enter(*run);
  work->take(std::move(run));
  return std::unique_ptr<Work>(std::move(work));
}

void HierExecutor::cancel(uint32_t group, uint64_t sequence, const Status& why) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  if (State::HierGroup* const known = state_->find(group)) return known->line.cancel(sequence, why);
  state_->parts.transport->discard(group, sequence);  // nothing of the group is in line before it
}

void HierExecutor::peer_left(Rank world) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  if (std::find(state_->left.begin(), state_->left.end(), world) != state_->left.end()) return;
  state_->left.push_back(world);
  for (const std::unique_ptr<State::HierGroup>& group : state_->groups) {
    group->group.note_left(world);
    group->line.wake();
  }
}

void HierExecutor::abort(uint32_t group, const Status& why) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->ended_groups.try_emplace(group, why);
  if (State::HierGroup* const known = state_->find(group)) known->line.abort(why);
}

void HierExecutor::abort(const Status& why) noexcept {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  if (state_->aborted.is_ok()) state_->aborted = why;
  for (const std::unique_ptr<State::HierGroup>& group : state_->groups) group->line.abort(why);
}

}  // namespace pc::shm
