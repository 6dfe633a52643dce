#include "engine/plan/plan_run_for.h"

namespace pc {

Result<std::unique_ptr<PlanRun>> plan_run_for(const Request& request, const Launch& launch,
                                              Transport& transport, RunQueue& runs, PlanCache& plans) {
  const Algorithm& algorithm = *launch.algorithm;
  const Shape shape{request.collective, launch.rank,  launch.size,
                    request.root,       launch.split, request.counts.empty()};
  std::unique_ptr<Run> idle = runs.take_idle([&](const Run& run) {
    const PlanRun* const plan_run = dynamic_cast<const PlanRun*>(&run);
    return plan_run != nullptr && plan_run->runs(algorithm, shape);
  });
  if (idle != nullptr) return std::unique_ptr<PlanRun>(static_cast<PlanRun*>(idle.release()));
  PC_ASSIGN_OR_RETURN(std::shared_ptr<const CompiledPlan> plan, plans.get(algorithm, shape));
  return std::make_unique<PlanRun>(transport, algorithm, std::move(plan));
}

}  // namespace pc
