// Predicts the duration of plans with the alpha-beta-gamma model (R. Hockney, The communication
// challenge for MPP, 1994) and LogGP's overhead per message (A. Alexandrov et al., LogGP, 1995).
// The model ranks algorithms and shows the effect of a different link. It is no measurement: all
// links are alike, there are always enough cores, and a message needs no room at its receiver.
#pragma once

#include <cstdint>

#include "plan/link_model.h"
#include "plan/source.h"

namespace pc {

// `nbytes` is the size of the whole array. Time and memory are proportional to the number of steps
// (time, with lanes, also to the logarithm of that number).
Result<Cost> predict(PlanSource& plans, uint64_t nbytes, const LinkModel& model);

}  // namespace pc
