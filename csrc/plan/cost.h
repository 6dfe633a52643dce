// How long plans take on paper: the alpha-beta-gamma model (R. Hockney, The communication challenge for MPP, 1994) with
// LogGP's overhead per message (A. Alexandrov et al., LogGP, 1995). It ranks algorithms and shows what a link would change; it
// is no measurement: all links are alike, cores are never short, and a message needs no room at its receiver.
#pragma once

#include <cstdint>

#include "plan/link_model.h"
#include "plan/source.h"

namespace pc {

// `nbytes` of the whole array. Time and memory are proportional to the number of steps (times its logarithm, with lanes).
Result<Cost> predict(PlanSource& plans, uint64_t nbytes, const LinkModel& model);

}  // namespace pc
