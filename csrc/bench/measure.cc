#include "bench/measure.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "bench/patterns.h"

namespace pc::bench {
namespace {

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<std::byte, Free>;

// On a page of its own, as an ordinary program's large arrays are; zeros, all of it touched.
Result<Memory> allocate(std::size_t nbytes) {
  constexpr std::size_t kPage = 4096;
  const std::size_t rounded = std::max<std::size_t>(1, (nbytes + kPage - 1) / kPage) * kPage;
  Memory memory(static_cast<std::byte*>(std::aligned_alloc(kPage, rounded)));
  if (!memory) return system_error("allocating " + std::to_string(nbytes) + " bytes", ENOMEM);
  std::memset(memory.get(), 0, rounded);
  return memory;
}

int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

Status allreduce(Communicator& world, std::vector<int64_t>& values, ReduceOp op) {
  Request request;
  request.collective = Collective::kAllreduce;
  request.out = {reinterpret_cast<std::byte*>(values.data()), values.size(), DType::kI64};
  request.in = request.out;
  request.op = op;
  return world.run(request);
}

// Roots to verify, of those that the timed calls have.
std::set<Rank> roots(const Case& what, Rank size) {
  if (what.root || !what.operation->rooted) return {what.root.value_or(0)};
  return {0, size / 2, size - 1};
}

// Wrong elements over all ranks.
Result<uint64_t> count_wrong(Communicator& world, const Case& what, Buffer data) {
  const Rank rank = world.rank(), size = world.size();
  std::vector<int64_t> wrong = {0};
  for (const Rank root : roots(what, size)) {
    const Asked call = {what.op, root};
    const auto element = [&](auto function) {
      return [=](uint64_t index) { return function(call, rank, size, index); };
    };
    Pattern(data.dtype, element(what.operation->input)).fill(data);
    PC_TRY(what.operation->run(world, call, data));
    const Pattern expected(data.dtype, element(what.operation->expected));
    wrong[0] += static_cast<int64_t>(expected.count_wrong(data));
  }
  PC_TRY(allreduce(world, wrong, ReduceOp::kSum));
  return static_cast<uint64_t>(wrong[0]);
}

// When this rank was done with each call, the first of which only sets the zero.
Result<std::vector<int64_t>> completions(Communicator& world, const Case& what, Buffer data,
                                         const Effort& effort) {
  Asked asked = {what.op, what.root.value_or(0)};
  const auto call = [&] {
    PC_TRY(what.operation->run(world, asked, data));
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
Result<Latencies> time_calls(const World& world, const Case& what, Buffer data, const Effort& effort) {
  PC_ASSIGN_OR_RETURN(std::vector<int64_t> ends, completions(world.group, what, data, effort));
  std::vector<int64_t> total = {ends.back() - ends.front()};
  std::vector<int64_t> each = differences(ends);
  if (world.one_clock) {
    PC_TRY(allreduce(world.group, ends, ReduceOp::kMax));
    each = differences(ends);
    total = {ends.back() - ends.front()};
  } else {
    PC_TRY(allreduce(world.group, each, ReduceOp::kMax));
    PC_TRY(allreduce(world.group, total, ReduceOp::kMax));
  }
  return latencies(each, total[0], what.operation->trips);
}

}  // namespace

Result<Row> measure(const World& world, const Case& what, uint64_t nbytes, const Effort& effort) {
  Row row;
  row.what = what;
  row.iterations = effort.iterations;
  row.count = what.operation->moves_data ? std::max<uint64_t>(1, nbytes / size_of(what.dtype)) : 0;
  row.nbytes = row.count * size_of(what.dtype);
  PC_ASSIGN_OR_RETURN(const Memory memory, allocate(row.nbytes));
  const Buffer data = {memory.get(), row.count, what.dtype};
  if (effort.checks) {
    PC_ASSIGN_OR_RETURN(row.wrong, count_wrong(world.group, what, data));
    std::memset(data.data, 0, data.nbytes());  // sums of zeros stay zeros, however often
  }
  PC_ASSIGN_OR_RETURN(row.time, time_calls(world, what, data, effort));
  row.algbw = static_cast<double>(row.nbytes) / row.time.mean_s / 1e9;
  row.busbw = row.algbw * what.operation->bus_factor(world.group.size());
  return row;
}

}  // namespace pc::bench
