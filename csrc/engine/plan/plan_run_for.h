// Returns the run of a plan for one call: an idle run, or a new one.
#pragma once

#include <memory>

#include "engine/plan/plan_cache.h"
#include "engine/plan/plan_run.h"
#include "engine/run_queue.h"

namespace pc {

Result<std::unique_ptr<PlanRun>> plan_run_for(const Request& request, const Launch& launch,
                                              Transport& transport, RunQueue& runs, PlanCache& plans);

}  // namespace pc
