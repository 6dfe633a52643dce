#include "engine/plan/plan_executor.h"

#include "engine/plan/plan_run_for.h"

namespace pc {

struct PlanExecutor::State {
  struct PlanGroup : OpenGroup {
    PlanGroup(Transport& transport, Reactor& reactor, uint32_t id)
        : queue(reactor, id, [&transport, id](uint64_t sequence) { transport.discard(id, sequence); }) {}
    RunQueue& runs() override { return queue; }
    RunQueue queue;
  };

  Transport& transport;
  Reactor& reactor;
  PlanCache plans = PlanCache();
  OpenGroups groups{[this](uint32_t group, uint64_t sequence) { transport.discard(group, sequence); }};
};

PlanExecutor::PlanExecutor(Transport& transport, Reactor& reactor)
    : PlanExecutor(std::make_shared<State>(transport, reactor)) {}
PlanExecutor::PlanExecutor(const std::shared_ptr<State>& state)
    : CpuExecutor({state, &state->groups}),
      state_(*state) {}

Result<WorkPtr> PlanExecutor::launch(const Request& request, const Launch& launch) {
  const std::shared_ptr<OpenGroup>& group = state_.groups.get(launch.group, [&] {
    return std::make_shared<State::PlanGroup>(state_.transport, state_.reactor, launch.group);
  });
  RunQueue& queue = static_cast<State::PlanGroup&>(*group).queue;
  PC_ASSIGN_OR_RETURN(std::unique_ptr<PlanRun> run,
                      plan_run_for(request, launch, state_.transport, queue, state_.plans));
  run->prepare(request, launch);
  return queue.enter(std::move(run), groups_, group);
}

}  // namespace pc
