// The options of the benchmark's command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/collectives.h"

namespace pc::bench {

// What is measured, except for the size.
struct Case {
  const Operation* operation = nullptr;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;  // used if the operation reduces
  std::optional<Rank> root;      // used if the operation has a root; nullopt: another root in each iteration
  bool in_place = true, out_of_place = false;  // the halves of a row, at least one
};

struct Effort {
  uint64_t warm_up = 0, iterations = 1;
  bool checks = true;
};

// kAuto: by NCCL where possible, as in a program. kNccl: by NCCL, or an error. kStaged: through the
// host.
enum class GpuBackend : uint8_t { kAuto, kNccl, kStaged };

// How a row combines the ranks' times. The values are the numbers that nccl-tests uses.
enum class Average : uint8_t { kRank0, kMean, kLeast, kMost };

struct Options {
  std::optional<Rank> ranks;    // number to start; nullopt: two, or as many as a launcher has started
  std::vector<uint64_t> sizes;  // bytes
  std::vector<Case> cases;      // in the order in which they are measured
  std::optional<uint64_t> warm_up, iterations;  // nullopt: by size
  bool checks = true;
  std::string transport, tune;      // empty: from the environment
  std::optional<double> timeout_s;  // nullopt: from the environment
  std::string group;                // empty: the world; see groups.h
  bool roofline = false;            // measure the roofline and nothing else
  bool json = false, explain = false, help = false;
  DeviceType device = DeviceType::kCpu;  // where the arrays are stored

  // Only with --device cuda:
  GpuBackend backend = GpuBackend::kAuto;
  bool raw = false;       // also times NCCL's own calls
  bool copy = false;      // for each row, also times the driver's copy of the row's bytes
  std::vector<int> gpus;  // assigned to local ranks round-robin; empty: local rank modulo the number of GPUs
  bool shares_gpu = false;      // ranks may share a GPU and still use NCCL
  uint64_t threads = 0;         // number of ranks, as threads of this process; 0: ranks are processes
  uint64_t aggregated = 1;      // calls that are aggregated into one call with a list of arrays
  uint64_t graph_launches = 0;  // 0: no graph
  bool blocking = false;        // the host waits for every call, and for the other ranks
  bool host_time = false;       // reports the time until calls are queued, not until they end
  Average average = Average::kMean;
  uint64_t cycles = 1;  // how often all rows are measured; 0: endlessly

  bool on_gpus() const { return device == DeviceType::kCuda; }
};

// Checks the options whose validity depends on the number of ranks.
Status check(const Options& options, Rank size);
Effort effort(const Options& options, uint64_t nbytes);

}  // namespace pc::bench
