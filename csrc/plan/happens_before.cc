// Vector clocks over lanes. Three things order two steps, on every transport and at any speed:
// - the lane: a step begins after the previous step is complete (a send: after it is posted);
// - `after`;
// - a message: a receive accesses memory after the send is posted, and completes after the send's
//   memory was read.
// A completed send proves nothing about the receiver: over a socket it only means that the bytes
// were copied.
#include <algorithm>

#include "plan/analysis.h"

namespace pc {

HappensBefore::HappensBefore(Plans plans, const Schedule& schedule) : plans_(plans), schedule_(schedule) {
  std::size_t steps = 0;
  for (const Plan& plan : plans) {
    first_chain_.push_back(chains_);
    first_step_.push_back(steps);
    chains_ += plan.lanes;
    steps += plan.steps.size();
  }
  known_.assign(steps * chains_, 0);
  std::vector<StepRef> last(chains_, StepRef{-1, 0});  // per lane, the last step in the order so far
  for (const StepRef& at : schedule.order) {
    const Step& step = plans[static_cast<std::size_t>(at.rank)].steps[at.index];
    uint32_t* mine = &known_[(first_step_[static_cast<std::size_t>(at.rank)] + at.index) * chains_];
    const auto learn = [&](Rank rank, uint32_t index) {
      const uint32_t* theirs = known(rank, index);
      for (std::size_t c = 0; c < chains_; ++c) mine[c] = std::max(mine[c], theirs[c]);
    };
    const std::size_t lane = chain(at.rank, step.lane);
    if (last[lane].rank >= 0) learn(last[lane].rank, last[lane].index);
    if (step.after > 0) learn(at.rank, step.after - 1);
    if (is_receive(step.kind)) {
      learn(step.peer, schedule.partner[static_cast<std::size_t>(at.rank)][at.index]);
    }
    mine[lane] = at.index + 1;
    last[lane] = at;
  }
}

const uint32_t* HappensBefore::known(Rank rank, uint32_t step) const {
  return &known_[(first_step_[static_cast<std::size_t>(rank)] + step) * chains_];
}

bool HappensBefore::ends_before(Rank rank, uint32_t a, uint32_t b) const {
  if (a == b) return false;
  const std::vector<Step>& steps = plans_[static_cast<std::size_t>(rank)].steps;
  const uint32_t* at_b = known(rank, b);
  if (steps[a].kind != StepKind::kSend) return at_b[chain(rank, steps[a].lane)] > a;
  // Two things prove that a send's memory was read: the matching receive is complete, or a step
  // that waited for the send has begun.
  const uint32_t receive = schedule_.partner[static_cast<std::size_t>(rank)][a];
  if (at_b[chain(steps[a].peer, steps[a].lane)] > receive) return true;
  for (uint32_t i = a + 1; i < steps.size(); ++i) {
    if (steps[i].after == a + 1 && at_b[chain(rank, steps[i].lane)] > i) return true;
  }
  return false;
}

bool HappensBefore::ends_after_begin_of(Rank rank, Rank other) const {
  const std::vector<Step>& steps = plans_[static_cast<std::size_t>(rank)].steps;
  for (uint32_t i = 0; i < steps.size(); ++i) {
    const uint32_t* at_i = known(rank, i);
    for (uint8_t lane = 0; lane < plans_[static_cast<std::size_t>(other)].lanes; ++lane) {
      if (at_i[chain(other, lane)] > 0) return true;
    }
  }
  return rank == other;
}

}  // namespace pc
