// The limits of this machine, as a reference for the figures of collectives: moving memory, adding
// it, the loopback connection, and waking another thread.
#pragma once

#include <functional>
#include <string_view>

#include "bench/latencies.h"
#include "bench/options.h"

namespace pc::bench {

struct Roofline {
  std::string_view name;
  uint64_t nbytes = 0, iterations = 0;  // 0 bytes: nothing is moved
  Latencies time;
  double gbps() const { return static_cast<double>(nbytes) / time.p50_s / 1e9; }
};

// Measures memcpy on one core, repeatedly in the same memory: small sizes stay in the caches, as
// they do in the benchmark.
Result<Roofline> roofline_of_copy(uint64_t nbytes, uint64_t iterations);
Result<Roofline> roofline_of_add(uint64_t nbytes, uint64_t iterations);  // a += b in float32
// Measures one direction between threads on two cores, as half of a round trip; the waiting thread
// polls.
Result<Roofline> roofline_of_tcp(uint64_t nbytes, uint64_t iterations, Deadline deadline);
// Measures the wake-up of a thread on another core that sleeps on a futex, as half of a round trip.
Roofline roofline_of_wake(uint64_t iterations);

// Measures all four at all sizes, and passes each result to `take` as soon as it is known.
Status measure_roofline(const Options& options, const std::function<Status(const Roofline&)>& take);

}  // namespace pc::bench
