// What the command line of the benchmark asks for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/collectives.h"

namespace pc::bench {

// What is measured, but for the size.
struct Case {
  const Operation* operation = nullptr;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;                // if the operation reduces
  std::optional<Rank> root;                    // if it has one; nothing: another one in each iteration
  bool in_place = true, out_of_place = false;  // which halves a row has, at least one
};

struct Effort {
  uint64_t warm_up = 0, iterations = 1;
  bool checks = true;
};

// kAuto: as in a program, by NCCL where it can go. kNccl: so or not at all.
enum class GpuBackend : uint8_t { kAuto, kNccl, kStaged };

// Of which ranks a row's time is, in the numbers of nccl-tests.
enum class Average : uint8_t { kRank0, kMean, kLeast, kMost };

struct Options {
  std::optional<Rank> ranks;    // to start; nothing: two, or as many as a launcher has started
  std::vector<uint64_t> sizes;  // bytes
  std::vector<Case> cases;      // in the order in which they are measured
  std::optional<uint64_t> warm_up, iterations;  // nothing: by size
  bool checks = true;
  std::string transport, tune;      // empty: as the environment says
  std::optional<double> timeout_s;  // likewise
  std::string group;                // empty: the world; see groups.h
  bool roofline = false;            // it is measured, and nothing else
  bool json = false, explain = false, help = false;
  DeviceType device = DeviceType::kCpu;  // where the arrays lie

  // With --device cuda alone:
  GpuBackend backend = GpuBackend::kAuto;
  bool raw = false;             // NCCL's own calls are timed beside ours
  bool copy = false;            // the driver's copy of as many bytes is timed beside each row
  std::vector<int> gpus;        // by local rank, in turn; empty: local rank modulo how many there are
  bool shares_gpu = false;      // ranks may share a GPU and go by NCCL all the same
  uint64_t threads = 0;         // ranks are so many threads of this process; 0: processes
  uint64_t aggregated = 1;      // calls in one group
  uint64_t graph_launches = 0;  // 0: no graph
  bool blocking = false;        // the host waits for every call, and for the other ranks
  bool host_time = false;       // is what is reported
  Average average = Average::kMean;
  uint64_t cycles = 1;  // 0: without end

  bool on_gpus() const { return device == DeviceType::kCuda; }
};

// What cannot be known before the number of ranks is.
Status check(const Options& options, Rank size);
Effort effort(const Options& options, uint64_t nbytes);

}  // namespace pc::bench
