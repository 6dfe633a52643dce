#include "engine/plan/plan_executor.h"

#include "engine/line_work.h"
#include "engine/open_groups.h"
#include "engine/plan/plan_run_for.h"

namespace pc {

struct PlanExecutor::State {
  struct PlanGroup {
    GroupLine line;
    void close() {}
  };
  State(Transport& transport_, Reactor& reactor_) : transport(transport_), reactor(reactor_) {}
  const std::shared_ptr<PlanGroup>& get(uint32_t id) {
    return groups.get(id, [&] {
      const auto discard = [this, id](uint64_t sequence) { transport.discard(id, sequence); };
      return std::shared_ptr<PlanGroup>(new PlanGroup{{reactor, id, discard}});
    });
  }

  Transport& transport;
  Reactor& reactor;
  PlanCache plans;
  OpenGroups<PlanGroup> groups;
};

PlanExecutor::PlanExecutor(Transport& transport, Reactor& reactor)
    : state_(std::make_shared<State>(transport, reactor)) {}
PlanExecutor::~PlanExecutor() { abort(Status(Code::kAborted, "the executor was closed")); }

std::string_view PlanExecutor::name() const { return "plan"; }

bool PlanExecutor::supports(const Request& request, Rank) const {
  if (request.in.device.type != DeviceType::kCpu || request.out.device.type != DeviceType::kCpu) return false;
  return !reduces(request.collective) || can_reduce(request.in.dtype, request.op);
}

Result<std::unique_ptr<Work>> PlanExecutor::launch(const Request& request, const Launch& launch) {
  const std::shared_ptr<State::PlanGroup>& group = state_->get(launch.group);
  auto work =
      std::make_unique<LineWork>(state_, group, group->line);  // first: once it runs, something must own it
  PC_ASSIGN_OR_RETURN(std::unique_ptr<PlanRun> run,
                      plan_run_for(request, launch, state_->transport, group->line, state_->plans));
  run->prepare(request, launch);
  group->line.enter(*run);
  work->take(std::move(run));
  return std::unique_ptr<Work>(std::move(work));
}

void PlanExecutor::cancel(uint32_t group, uint64_t sequence, const Status& why) {
  if (state_->groups.cancel(group, sequence, why)) return;
  state_->transport.discard(group, sequence);  // nothing of the group is in line before it
}

void PlanExecutor::abort(uint32_t group, const Status& why) { state_->groups.abort(group, why); }
void PlanExecutor::abort(const Status& why) noexcept { state_->groups.abort(why); }
void PlanExecutor::close(uint32_t group) { state_->groups.close(group); }

}  // namespace pc
