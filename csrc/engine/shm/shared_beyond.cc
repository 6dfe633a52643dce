// Rounds of a SharedRun that are exchanged with ranks of other hosts: what this rank has for one lies in its ring, becomes there
// what it is everywhere, and only then is passed on.
#include <algorithm>

#include "engine/shm/shared_run.h"

namespace pc::shm {

bool SharedRun::others_want_results() const {
  return traffic_.passes_results_on() &&
         (request_.collective == Collective::kAllreduce || launch_.rank != request_.root);
}

void SharedRun::exchange(uint32_t round, uint64_t position, std::span<std::byte> memory) {
  positions_.push_back(position);
  beyond_->exchange(round, memory);
}

void SharedRun::hold_what_is_not_passed_on() {
  if (beyond_ != nullptr) group_.hold(traffic_.combines() ? kResults : kInputs, passed_);
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
  if (is_of_parts()) {
    take_parts(launch_.rank, passed_, nbytes, group_.at(positions_[passed_]));
  } else if (takes)
    arrays_.take(group_.at(positions_[passed_]), all.begin + offset, nbytes);
  if (!combines || others_want_results())
    group_.publish(combines ? kResults : kInputs, passed_, positions_[passed_]);
  ++passed_;
  hold_what_is_not_passed_on();
  return true;
}

// ---- arrays of which every rank has a part

bool SharedRun::is_of_parts() const { return beyond_ != nullptr && has_parts(request_.collective); }

// Of all parts there is one piece in a message, one behind the other.
template <class Each>
void SharedRun::for_parts_of(Rank member, uint32_t round, std::size_t nbytes, Each&& each) const {
  const std::span<const Rank> parts = beyond_->parts_of(member);
  const std::size_t part_nbytes = traffic_.outgoing(launch_.rank).nbytes / parts.size();
  const std::size_t offset = round * (traffic_.chunk_nbytes() / parts.size());
  for (const Rank part : parts)
    each(static_cast<std::size_t>(part) * part_nbytes + offset, nbytes / parts.size());
}

void SharedRun::put_parts(Rank reader, uint32_t round, std::size_t nbytes, std::byte* to) const {
  if (!traffic_.combines()) {  // this rank has its own part alone
    const std::size_t parts = beyond_->parts_of(reader).size(), piece = nbytes / parts;
    arrays_.put(to + beyond_->own_part() * piece, round * (traffic_.chunk_nbytes() / parts), piece,
                group_.copy_for(reader));
    return;
  }
  for_parts_of(reader, round, nbytes, [&](std::size_t begin, std::size_t piece) {
    arrays_.put(to, begin, piece, group_.copy_for(reader));
    to += piece;
  });
}

void SharedRun::take_parts(Rank writer, uint32_t round, std::size_t nbytes, const std::byte* from) const {
  if (traffic_.combines()) {
    const std::size_t parts = beyond_->parts_of(writer).size(), piece = nbytes / parts;
    arrays_.take(from + beyond_->own_part() * piece, round * (traffic_.chunk_nbytes() / parts), piece);
    return;
  }
  for_parts_of(writer, round, nbytes, [&](std::size_t begin, std::size_t piece) {
    arrays_.take(from, begin, piece);
    from += piece;
  });
}

void SharedRun::combine_parts(uint32_t round, std::size_t nbytes, std::byte* to) {
  for_parts_of(launch_.rank, round, nbytes, [&](std::size_t begin, std::size_t piece) {
    sources_[static_cast<std::size_t>(launch_.rank)] = nullptr;  // ours is elsewhere in the input each time
    arrays_.combine(contributions(), begin, CallArrays::kNowhere, piece, to, group_.stores_for_all());
    to += piece;
  });
}

}  // namespace pc::shm
