#include "plan/simulate.h"

#include "plan/analysis.h"
#include "plan/walk.h"

namespace pc {
namespace {

Status check_results(PlanSource& plans, Cells& cells) {
  Plan head = plans.of(0);
  head.steps = {};
  for (; head.shape.rank < plans.size(); ++head.shape.rank) PC_TRY(cells.check_result(head));
  return Status::ok();
}

}  // namespace

Result<Cost> simulate(PlanSource& plans, uint64_t nbytes, const LinkModel& model) {
  PC_TRY(plans.check_structure());
  const Plan& any = plans.of(plans.size() / 2);
  PC_TRY(Cells::fits(any));
  Cells cells(any);
  PC_ASSIGN_OR_RETURN(const Cost cost, Walk(plans, nbytes, model, &cells).to_the_end());
  PC_TRY(check_results(plans, cells));
  return cost;
}

Status check_one_pass(PlanSource& plans) {
  PC_TRY(plans.check_structure());
  const Plan first = plans.of(0);
  if (synchronizes(first.shape.collective)) {
    return Status(Code::kUnsupported, "a barrier of " + std::to_string(first.shape.size) +
                                          " ranks cannot be checked in one pass: take fewer ranks");
  }
  for (Rank rank = 0; rank < plans.size(); ++rank) {
    const Plan& plan = plans.of(rank);
    PC_TRY(check_structure_of(plan, rank, plans.size(), first));
    PC_TRY(check_local_hazards(plan));
  }
  PC_TRY(Cells::fits(first));
  Cells cells(first);
  Walk walk(plans, 0, link_models()[0], &cells);
  PC_ASSIGN_OR_RETURN([[maybe_unused]] const Cost cost, walk.to_the_end());
  PC_TRY(check_results(plans, cells));
  if (walk.receives_totals() || first.shape.collective != Collective::kAllreduce) return Status::ok();
  return plan_error(first,
                    "cannot be shown free of hazards in one pass: a plain receive gets less than the "
                    "whole sum");
}

bool fits_full_check(PlanSource& plans) {
  constexpr uint64_t kMostNbytes = uint64_t{256} << 20;
  if (!plans.keeps_all()) return false;
  uint64_t steps = 0, chains = 0;
  for (Rank rank = 0; rank < plans.size(); ++rank) {
    steps += plans.of(rank).steps.size();
    chains += plans.of(rank).lanes;
  }
  return steps * chains * sizeof(uint32_t) <= kMostNbytes;
}

}  // namespace pc
