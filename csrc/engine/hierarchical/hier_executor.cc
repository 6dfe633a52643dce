#include "engine/hierarchical/hier_executor.h"

#include <array>
#include <utility>

#include "engine/hierarchical/island_run.h"
#include "engine/line_work.h"
#include "engine/open_groups.h"
#include "engine/plan/plan_run_for.h"
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
    void close() { group.close(); }
    const IslandMembers members;
    Group group;     // the baton's
    Waiter waiter;   // likewise
    GroupLine line;  // its runs use the rest
  };

  explicit State(Parts given) : parts(std::move(given)) {}
  const std::shared_ptr<HierGroup>& get(const Launch& launch) {
    return groups.get(launch.group, [&] { return std::make_shared<HierGroup>(parts, launch); });
  }

  const Parts parts;
  PlanCache plans;
  OpenGroups<HierGroup> groups;
};

HierExecutor::HierExecutor(Parts parts) : state_(std::make_shared<State>(std::move(parts))) {}
HierExecutor::~HierExecutor() { abort(Status(Code::kAborted, "the executor was closed")); }

bool HierExecutor::supports(const Request& request, Rank) const {
  if (request.in.device.type != DeviceType::kCpu || request.out.device.type != DeviceType::kCpu) return false;
  return !reduces(request.collective) || can_reduce(request.in.dtype, request.op);
}

Result<std::unique_ptr<Work>> HierExecutor::launch(const Request& request, const Launch& launch) {
  const std::shared_ptr<State::HierGroup>& shared = state_->get(launch);
  State::HierGroup& group = *shared;
  auto work =
      std::make_unique<LineWork>(state_, shared, group.line);  // first: once it runs, something must own it
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
  if (state_->groups.cancel(group, sequence, why)) return;
  state_->parts.transport->discard(group, sequence);  // nothing of the group is in line before it
}

void HierExecutor::peer_left(Rank world) {
  state_->groups.peer_left(world, [](State::HierGroup& group, Rank left) { group.group.note_left(left); });
}

void HierExecutor::abort(uint32_t group, const Status& why) { state_->groups.abort(group, why); }
void HierExecutor::abort(const Status& why) noexcept { state_->groups.abort(why); }
void HierExecutor::close(uint32_t group) { state_->groups.close(group); }

}  // namespace pc::shm
