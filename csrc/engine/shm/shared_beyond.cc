// Rounds of a SharedRun that are exchanged with ranks of other hosts: what this rank has for one lies in its ring, becomes there
// what it is everywhere, and only then is passed on.
#include <algorithm>

#include "engine/shm/shared_run.h"

namespace pc::shm {

bool SharedRun::others_want_results() const {
  return traffic_.passes_results_on() &&
         (request_.collective == Collective::kAllreduce || launch_.rank != request_.root);
}

void SharedRun::exchange(uint32_t round, uint64_t position, std::size_t nbytes) {
  positions_.push_back(position);
  beyond_->exchange(round, {group_.at(position), nbytes});
}

bool SharedRun::pass_on() {
  if (passed_ == positions_.size()) return false;
  Result<bool> is_done = beyond_->take(passed_);
  if (!is_done.is_ok()) return fail(is_done.status());
  if (!is_done.value()) return false;
  const bool combines = traffic_.combines();
  const Traffic::Span all = combines ? own_sum() : traffic_.outgoing(launch_.rank);
  const std::size_t offset = passed_ * traffic_.chunk_nbytes();
  const std::size_t nbytes = std::min(traffic_.chunk_nbytes(), all.nbytes - offset);
  // A broadcast's root has it.
  const bool takes = combines ? traffic_.wants_results() : !arrays_.has_input();
  if (takes) arrays_.take(group_.at(positions_[passed_]), all.begin + offset, nbytes, way_);
  if (!combines || others_want_results())
    group_.publish(combines ? kResults : kInputs, passed_, positions_[passed_]);
  ++passed_;
  return true;
}

}  // namespace pc::shm
