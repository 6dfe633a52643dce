#include "plan/cost.h"

#include "plan/walk.h"

namespace pc {
Result<Cost> predict(PlanSource& plans, uint64_t nbytes, const LinkModel& model) {
  PC_TRY(plans.check_structure());
  return Walk(plans, nbytes, model).to_the_end();
}

}  // namespace pc
