// Runs the plans of all ranks on data in one process, thousands of ranks if need be, and compares what they end with to what
// the collective means, computed directly from the inputs.
#pragma once

#include "plan/cost.h"

namespace pc {

// Every chunk is one 64-bit cell: a 48-bit integer and how many contributions it holds (cells.h). OK: every rank's output is
// right, every weight was right, every message was received and nobody was left waiting. `nbytes` of the whole array only
// scales the sizes and times that are reported.
Result<Cost> simulate(PlanSource& plans, uint64_t nbytes, const LinkModel& model);

// check() for so many ranks that its vector clocks (4 bytes per step and lane of any rank) do not fit. In one pass over the
// plans it proves
//   structure   of every plan, as check() does;
//   schedule    messages match and nothing waits in a circle, as check() does;
//   result      as check() does, with 48-bit fingerprints;
//   hazards     from each plan by itself: by lane, by `after`, and, in an allreduce, because the whole sum has come back
//               (local_hazards.cc). This finds fewer reasons than check(), so it may refuse a right plan; it never accepts
//               one with a hazard.
// Barriers, whose promise is about time, are not for it: Unsupported.
Status check_one_pass(PlanSource& plans);

// Which of the two fits: true if check()'s clocks take 256 MiB at most.
bool fits_full_check(PlanSource& plans);

}  // namespace pc
