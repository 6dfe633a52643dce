#include "engine/hierarchical/hier_run.h"

#include <algorithm>

namespace pc::shm {
namespace {

// Returns the reduction to use inside each domain. A mean of elements of 4 bytes or more is a sum
// there, which is divided only once, at the very end.
Reduction reduction_in_domain(const Request& request) {
  const bool is_mean_of_wide = request.op == ReduceOp::kAvg && size_of(request.in.dtype) >= 4;
  return is_mean_of_wide ? Reduction(ReduceOp::kSum) : request.op;
}

}  // namespace

void HierRun::prepare_call(const Request& request, const Launch& launch) {
  const GroupTable& table = members_.table;
  Request whole = request;
  // A barrier and a call without data run as an allreduce of one byte: a rank that has the result
  // knows that all ranks have entered the call. The allreduce also detects if some ranks have data
  // and others have none.
  if (request.collective == Collective::kBarrier || elements_of(request, launch.size).count == 0) {
    whole = Request{};
    whole.collective = Collective::kAllreduce;
    whole.op = ReduceOp::kMax;
    whole.in = whole.out = Buffer{&nothing_, 1, DType::kU8};
  }
  const bool moves = whole.collective == Collective::kBroadcast;
  const std::size_t nbytes = elements_of(whole, launch.size).nbytes();
  const bool of_parts = has_parts(whole.collective);
  const bool is_led = goes_through_leaders(whole.collective, nbytes),
             is_rooted = pc::is_rooted(whole.collective);

  Request near = whole;
  near.op = reduction_in_domain(whole);
  Division division{slices_of(whole.collective, members_.shape), members_.shape.most,
                    of_parts ? static_cast<uint32_t>(members_.shape.count) : 1};
  ranks_.clear();
  if (is_led || moves) {
    ranks_ = members_.inter_groups.front();
    if (is_rooted) ranks_[static_cast<std::size_t>(table.domain_of(whole.root))] = whole.root;
    near.root = table.place_here(ranks_[static_cast<std::size_t>(table.own_domain())]);
  } else {
    if (static_cast<uint32_t>(table.own_place()) < division.slices)
      ranks_ = members_.inter_groups[static_cast<std::size_t>(table.own_place())];
    if (is_rooted) near.root = table.place_here(whole.root);
  }
  if (is_led) {
    division = {.leader = near.root};
    if (table.own_place() != near.root) ranks_.clear();
    if (is_rooted && launch.rank != whole.root) (moves ? near.in : near.out) = {};
  }
  Launch here = launch;
  here.rank = table.own_place();
  here.size = static_cast<Rank>(table.members().size());
  here.world_ranks = members_.worlds.data();
  here.names = table.members().data();

  InterGroup::Part part{whole.collective, reduces(whole.collective) ? whole.in.dtype : DType::kU8, whole.op};
  if (is_rooted) part.root = table.domain_of(whole.root);
  part.fixed_order = whole.fixed_order;
  // At least 2, even if a domain has only one rank: a kernel treats an operand with one
  // contribution as the input of a rank, so a scaled sum would multiply it by the factor a second
  // time.
  part.contributions = static_cast<uint32_t>(std::max<Rank>(members_.shape.least, 2));
  inter_group_.prepare(part, launch, ranks_, table.own_domain());
  SharedRun::prepare(near, here, division, &inter_group_);
}

}  // namespace pc::shm
