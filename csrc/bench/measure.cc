#include "bench/measure.h"

#include <algorithm>
#include <set>

#include "bench/groups.h"

namespace pc::bench {
namespace {

// Returns a subset of the roots of the timed calls.
std::set<Rank> roots_to_verify(const Case& what, Rank size) {
  if (what.root || !what.operation->rooted()) return {what.root.value_or(0)};
  return {0, size / 2, size - 1};
}

// Returns the number of wrong elements on all ranks.
Result<uint64_t> wrong_elements(Communicator& group, const Case& what, Calls& calls, bool raw) {
  int64_t wrong = 0;
  for (const Rank root : roots_to_verify(what, group.size())) {
    PC_ASSIGN_OR_RETURN(const uint64_t here, calls.count_wrong({what.op, root}, raw));
    wrong += static_cast<int64_t>(here);
  }
  PC_TRY(allreduce(group, {&wrong, 1}, ReduceOp::kSum));
  return static_cast<uint64_t>(wrong);
}

Result<Half> measure_half(MeasuredDevice& device, const Row& row, bool in_place, const Effort& effort) {
  Communicator& group = device.group();
  const Case& what = row.what;
  PC_ASSIGN_OR_RETURN(
      const std::unique_ptr<Calls> calls,
      device.prepare(what, {what.operation, what.dtype, in_place, row.count, group.rank(), group.size()}));
  Half half;
  // the arrays are zeros, so sums stay zeros however often they are computed
  PC_TRY(calls->time(effort, half));
  half.algbw = static_cast<double>(row.nbytes) / half.time.done.mean_s / 1e9;
  half.busbw = half.algbw * what.operation->bus.factor(group.size());
  if (!effort.checks) return half;
  PC_ASSIGN_OR_RETURN(half.wrong, wrong_elements(group, what, *calls, false));
  if (half.raw) {
    PC_ASSIGN_OR_RETURN(half.raw_wrong, wrong_elements(group, what, *calls, true));
  }
  return half;
}

}  // namespace

Result<Row> measure(MeasuredDevice& device, const Case& what, uint64_t nbytes, const Effort& effort) {
  const uint64_t parts = static_cast<uint64_t>(what.operation->parts(device.group().size()).most());
  Row row;
  row.what = what;
  row.iterations = effort.iterations;
  row.count = what.operation->moves_data() ? std::max<uint64_t>(1, nbytes / size_of(what.dtype) / parts) : 0;
  row.nbytes = row.count * parts * size_of(what.dtype);
  if (what.out_of_place) {
    PC_ASSIGN_OR_RETURN(row.out_of_place, measure_half(device, row, false, effort));
  }
  if (what.in_place) {
    PC_ASSIGN_OR_RETURN(row.in_place, measure_half(device, row, true, effort));
  }
  PC_ASSIGN_OR_RETURN(row.copy_s, device.time_copy(row.nbytes));
  return row;
}

}  // namespace pc::bench
