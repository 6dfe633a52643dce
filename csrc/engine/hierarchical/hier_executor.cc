#include "engine/hierarchical/hier_executor.h"

#include <utility>

#include "engine/hierarchical/hier_run.h"
#include "engine/plan/plan_run_for.h"

namespace pc::shm {
namespace {

HierMembers members_of(const HierExecutor::Parts& parts, const Launch& launch) {
  const std::span worlds(launch.world_ranks, static_cast<std::size_t>(launch.size));
  std::vector<Rank> domains;
  for (const Rank world : worlds) domains.push_back(parts.domain_of[static_cast<std::size_t>(world)]);
  GroupTable table(domains, launch.rank);
  HierMembers members{std::move(table), {}, {}, {}};
  members.shape = members.table.shape();
  for (Rank place = 0; place < members.shape.least; ++place)
    members.inter_groups.push_back(members.table.inter_group(place));
  for (const Rank rank : members.table.members())
    members.worlds.push_back(worlds[static_cast<std::size_t>(rank)]);
  return members;
}

}  // namespace

const Algorithm& hierarchical(Collective collective) {
  static const auto kRows =
      algorithms_without_plan("hierarchical", "shared memory on each host, plans between the hosts",
                              "docs/shared-memory.md", /*fixed_order=*/true);
  return kRows[static_cast<std::size_t>(collective)];
}

struct HierExecutor::State {
  struct HierGroup : OpenGroup {
    HierGroup(const Parts& parts, const Launch& launch)
        : members(members_of(parts, launch)),
          group(*parts.host, launch.group, members.table.own_place(), members.worlds,
                limits_for(parts.limits, static_cast<std::size_t>(members.shape.most)),
                members.table.members()),
          waiter(parts.oversubscribed, Waiter::kSockets, parts.core),
          queue(*parts.reactor, launch.group,
                [transport = parts.transport, id = launch.group](uint64_t sequence) {
                  transport->discard(id, sequence);
                }) {}
    RunQueue& runs() override { return queue; }
    void note_left(Rank world) override { group.note_left(world); }
    void close() override { group.close(); }
    const HierMembers members;
    Group group;     // used by the holder of the progress lock
    Waiter waiter;   // used by the holder of the progress lock
    RunQueue queue;  // last member: its runs use the members above
  };

  explicit State(Parts given) : parts(std::move(given)) {}

  const Parts parts;
  PlanCache plans;
  OpenGroups groups{[this](uint32_t group, uint64_t sequence) { parts.transport->discard(group, sequence); }};
};

HierExecutor::HierExecutor(Parts parts) : HierExecutor(std::make_shared<State>(std::move(parts))) {}
HierExecutor::HierExecutor(const std::shared_ptr<State>& state)
    : CpuExecutor({state, &state->groups}),
      state_(*state) {}

Result<WorkPtr> HierExecutor::launch(const Request& request, const Launch& launch) {
  const std::shared_ptr<OpenGroup>& shared = state_.groups.get(
      launch.group, [&] { return std::make_shared<State::HierGroup>(state_.parts, launch); });
  auto& group = static_cast<State::HierGroup&>(*shared);
  std::unique_ptr<Run> run;
  if (launch.algorithm == &hierarchical(request.collective)) {
    run =
        group.queue.take_idle([](const Run& idle) { return dynamic_cast<const HierRun*>(&idle) != nullptr; });
    if (run == nullptr) {
      run = std::make_unique<HierRun>(*state_.parts.host, group.group, group.waiter, group.members,
                                      *state_.parts.transport, state_.plans, state_.parts.choose);
    }
    static_cast<HierRun&>(*run).prepare_call(request, launch);
  } else {
    PC_ASSIGN_OR_RETURN(std::unique_ptr<PlanRun> plan_run,
                        plan_run_for(request, launch, *state_.parts.transport, group.queue, state_.plans));
    plan_run->prepare(request, launch);
    run = std::move(plan_run);
  }
  return group.queue.enter(std::move(run), groups_, shared);
}

}  // namespace pc::shm
