#include "bench/seat.h"

#include <algorithm>
#include <vector>

#include "bench/allreduce.h"
#include "bench/groups.h"

namespace pc::bench {

Result<Seat> take_seat(Runtime& runtime, const std::string& words) {
  Communicator& world = runtime.world();
  if (words.empty()) return Seat{&world, world.rank() == 0};
  PC_ASSIGN_OR_RETURN(const std::vector<std::vector<Rank>> all, groups(words, world.size()));
  Seat seat;
  seat.prints = world.rank() == all.front().front();
  for (const std::vector<Rank>& ranks : all) {
    if (std::find(ranks.begin(), ranks.end(), world.rank()) == ranks.end()) continue;
    PC_ASSIGN_OR_RETURN(seat.group, runtime.make_group(1, ranks));
  }
  return seat;
}

Status meet(Communicator& world, const Seat& seat, std::optional<Row>& row) {
  int64_t wrong = row && row->wrong && seat.group->rank() == 0 ? static_cast<int64_t>(*row->wrong) : 0;
  PC_TRY(allreduce(world, {&wrong, 1}, ReduceOp::kSum));
  if (row && row->wrong) row->wrong = static_cast<uint64_t>(wrong);
  return Status::ok();
}

}  // namespace pc::bench
