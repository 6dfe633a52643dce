#include "engine/plan/plan_executor.h"

#include "engine/line_work.h"
#include "engine/plan/plan_run_for.h"

namespace pc {

struct PlanExecutor::State : OpenGroups {
  struct PlanGroup : OpenGroup {
    PlanGroup(State& state, uint32_t id)
        : queue(state.reactor, id, [&state, id](uint64_t sequence) { state.discard(id, sequence); }) {}
    GroupLine& line() override { return queue; }
    GroupLine queue;
  };
  State(Transport& transport_, Reactor& reactor_) : transport(transport_), reactor(reactor_) {}
  void discard(uint32_t group, uint64_t sequence) override { transport.discard(group, sequence); }

  Transport& transport;
  Reactor& reactor;
  PlanCache plans;
};

PlanExecutor::PlanExecutor(Transport& transport, Reactor& reactor)
    : CpuExecutor(std::make_shared<State>(transport, reactor)) {}

Result<std::unique_ptr<Work>> PlanExecutor::launch(const Request& request, const Launch& launch) {
  State& state = static_cast<State&>(*groups_);
  const std::shared_ptr<OpenGroup>& group =
      state.get(launch.group, [&] { return std::make_shared<State::PlanGroup>(state, launch.group); });
  GroupLine& queue = static_cast<State::PlanGroup&>(*group).queue;
  auto work =
      std::make_unique<LineWork>(groups_, group, queue);  // first: once it runs, something must own it
  PC_ASSIGN_OR_RETURN(std::unique_ptr<PlanRun> run,
                      plan_run_for(request, launch, state.transport, queue, state.plans));
  run->prepare(request, launch);
  queue.enter(*run);
  work->take(std::move(run));
  return std::unique_ptr<Work>(std::move(work));
}

}  // namespace pc
