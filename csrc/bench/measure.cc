#include "bench/measure.h"

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "bench/allreduce.h"
#include "bench/memory.h"

namespace pc::bench {
namespace {

// Wrong elements over all ranks.
Result<uint64_t> count_wrong_on_cpus(Communicator& world, const Case& what, ArrayMemory& memory) {
  int64_t wrong = 0;
  for (const Rank root : roots_to_verify(what, world.size())) {
    const Asked asked = {what.op, root};
    memory.fill(asked);
    PC_TRY(what.operation->run(world, asked, memory.arrays()));
    wrong += static_cast<int64_t>(memory.count_wrong(asked));
  }
  PC_TRY(allreduce(world, {&wrong, 1}, ReduceOp::kSum));
  return static_cast<uint64_t>(wrong);
}

// When this rank was done with each call, the first of which only sets the zero.
Result<std::vector<int64_t>> completions(Communicator& world, const Case& what, const Arrays& arrays,
                                         const Effort& effort) {
  Asked asked = {what.op, what.root.value_or(0)};
  const auto call = [&] {
    PC_TRY(what.operation->run(world, asked, arrays));
    if (!what.root) asked.root = (asked.root + 1) % world.size();
    return Status::ok();
  };
  PC_TRY(world.run(Request{}));
  for (uint64_t i = 0; i < effort.warm_up; ++i) PC_TRY(call());
  std::vector<int64_t> ends(effort.iterations + 1);
  for (int64_t& end : ends) {
    PC_TRY(call());
    end = now_ns();
  }
  PC_TRY(world.run(Request{}));
  return ends;
}

// A call takes until its slowest rank is done, from when the slowest was done with the one before. Without a common clock:
// as long as on the rank where it took longest.
Result<Latencies> time_calls(const World& world, const Case& what, const Arrays& arrays,
                             const Effort& effort) {
  PC_ASSIGN_OR_RETURN(std::vector<int64_t> ends, completions(world.group, what, arrays, effort));
  int64_t total_ns = ends.back() - ends.front();
  std::vector<int64_t> each = differences(ends);
  if (world.one_clock) {
    PC_TRY(allreduce(world.group, ends, ReduceOp::kMax));
    each = differences(ends);
    total_ns = ends.back() - ends.front();
  } else {
    PC_TRY(allreduce(world.group, each, ReduceOp::kMax));
    PC_TRY(allreduce(world.group, {&total_ns, 1}, ReduceOp::kMax));
  }
  return latencies(each, total_ns, what.operation->trips);
}

}  // namespace

std::set<Rank> roots_to_verify(const Case& what, Rank size) {
  if (what.root || !what.operation->rooted) return {what.root.value_or(0)};
  return {0, size / 2, size - 1};
}

Result<Row> measure(const World& world, const Case& what, uint64_t nbytes, const Effort& effort) {
  const Rank rank = world.group.rank(), size = world.group.size();
  const uint64_t parts = static_cast<uint64_t>(what.operation->parts(size).most());
  Row row;
  row.what = what;
  row.iterations = effort.iterations;
  row.count = what.operation->moves_data ? std::max<uint64_t>(1, nbytes / size_of(what.dtype) / parts) : 0;
  row.nbytes = row.count * parts * size_of(what.dtype);
  PC_ASSIGN_OR_RETURN(ArrayMemory memory, ArrayMemory::create({what.operation, what.dtype, what.in_place,
                                                               row.count, rank, size}));
  if (effort.checks) {
    PC_ASSIGN_OR_RETURN(row.wrong, count_wrong_on_cpus(world.group, what, memory));
    memory.clear();  // sums of zeros stay zeros, however often
  }
  PC_ASSIGN_OR_RETURN(row.time, time_calls(world, what, memory.arrays(), effort));
  row.algbw = static_cast<double>(row.nbytes) / row.time.mean_s / 1e9;
  row.busbw = row.algbw * what.operation->bus_factor(size);
  return row;
}

}  // namespace pc::bench
