#include "bench/measure.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

namespace pc::bench {
namespace {

constexpr uint64_t kWarmUp = 5, kFewest = 10, kMost = 1000, kBytesPerRow = 256 << 20;

uint64_t iterations_for(uint64_t nbytes) {
  return std::clamp(kBytesPerRow / std::max<uint64_t>(nbytes, 1), kFewest, kMost);
}

template <class T>
Status allreduce(Communicator& world, T* values, std::size_t count, DType dtype, ReduceOp op) {
  Request request;
  request.collective = Collective::kAllreduce;
  request.out = {reinterpret_cast<std::byte*>(values), count, dtype};
  request.in = request.out;
  request.op = op;
  return world.run(request);
}

Result<uint64_t> verify(Communicator& world, const Operation& operation, Buffer data) {
  fill(operation, world.rank(), data);
  PC_TRY(operation.run(world, data));
  int64_t wrong = static_cast<int64_t>(count_wrong(operation, world.rank(), world.size(), data));
  PC_TRY(allreduce(world, &wrong, 1, DType::kI64, ReduceOp::kSum));
  return static_cast<uint64_t>(wrong);
}

Result<std::vector<double>> sorted_times(Communicator& world, const Operation& operation, Buffer data,
                                         uint64_t iterations) {
  std::vector<double> seconds;
  seconds.reserve(iterations);
  for (uint64_t i = 0; i < kWarmUp + iterations; ++i) {
    const TimePoint begin = std::chrono::steady_clock::now();
    PC_TRY(operation.run(world, data));
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    if (i >= kWarmUp) seconds.push_back(taken.count());
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds;
}

}  // namespace

Result<Row> measure(Communicator& world, const Operation& operation, uint64_t nbytes, DType dtype,
                    uint64_t iterations) {
  if (!operation.moves_data) nbytes = 0;
  Row row;
  row.count = nbytes == 0 ? 0 : std::max<uint64_t>(1, nbytes / size_of(dtype));
  row.nbytes = row.count * size_of(dtype);
  std::vector<std::byte> memory(row.nbytes);
  const Buffer data = {memory.data(), row.count, dtype};
  PC_ASSIGN_OR_RETURN(row.wrong, verify(world, operation, data));

  std::fill(memory.begin(), memory.end(), std::byte{0});  // sums of zeros stay zeros, however often
  PC_ASSIGN_OR_RETURN(const std::vector<double> seconds,
                      sorted_times(world, operation, data, iterations ? iterations : iterations_for(nbytes)));
  std::array<double, 2> figures = {seconds[seconds.size() / 2], seconds[(seconds.size() * 99 - 1) / 100]};
  PC_TRY(allreduce(world, figures.data(), figures.size(), DType::kF64, ReduceOp::kMax));
  row.median_s = figures[0];
  row.p99_s = figures[1];
  row.algbw = static_cast<double>(row.nbytes) / row.median_s / 1e9;
  row.busbw = row.algbw * operation.bus_factor(world.size());
  return row;
}

}  // namespace pc::bench
