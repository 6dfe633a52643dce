// Runs the plans of all ranks, thousands if necessary, on data in one process and compares the
// results to the definition of the collective, computed directly from the inputs.
#pragma once

#include "plan/cost.h"

namespace pc {

// Every chunk is one 64-bit cell: a 48-bit integer and the number of contributions it holds
// (cells.h). Returns OK if every rank's output and every weight is right, every message was
// received and no rank waits forever. `nbytes`, the size of the whole array, only scales the
// reported sizes and times.
Result<Cost> simulate(PlanSource& plans, uint64_t nbytes, const LinkModel& model);

// A form of check() for so many ranks that the vector clocks of check() (4 bytes for each step and
// each lane of all ranks) do not fit into memory. In one pass over the plans it proves:
//   structure   of every plan, as check() does;
//   schedule    messages match and no steps wait in a circle, as check() does;
//   result      as check() does, with 48-bit fingerprints;
//   hazards     from each plan by itself: by lane, by `after` and, in an allreduce, by the return
//               of the whole sum (local_hazards.cc). This finds fewer proofs than check(). It may
//               refuse a right plan, but it never accepts a plan with a hazard.
// Returns Unsupported for barriers, which promise something about time.
Status check_one_pass(PlanSource& plans);

// Returns true if check() is feasible: all plans are in memory and its clocks take at most 256 MiB.
bool fits_full_check(PlanSource& plans);

}  // namespace pc
