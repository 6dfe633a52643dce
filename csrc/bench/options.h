// What the command line of the benchmark asks for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/gpu_options.h"
#include "bench/measure.h"

namespace pc::bench {

struct Options {
  std::optional<Rank> ranks;    // to start; nothing: two, or as many as a launcher has started
  std::vector<uint64_t> sizes;  // bytes
  std::vector<Case> cases;      // in the order in which they are measured
  std::optional<uint64_t> warm_up, iterations;  // nothing: by size
  bool checks = true;
  std::string transport, tune;      // empty: as the environment says
  std::optional<double> timeout_s;  // likewise
  std::string group;                // empty: the world; see groups.h
  bool ceilings = false;            // they are measured, and nothing else
  GpuOptions gpu;
  bool json = false, explain = false, help = false;
};

// What cannot be known before the number of ranks is.
Status check(const Options& options, Rank size);
Effort effort(const Options& options, uint64_t nbytes);

}  // namespace pc::bench
