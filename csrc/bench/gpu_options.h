// What --device cuda and the flags that go with it ask for.
#pragma once

#include <cstdint>
#include <vector>

namespace pc::bench {

// kAuto: as in a program, by NCCL where it can go. kNccl: so or not at all.
enum class GpuWay : uint8_t { kAuto, kNccl, kStaged };

// Of which ranks a row's time is, in the numbers of nccl-tests.
enum class Average : uint8_t { kRank0, kMean, kLeast, kMost };

struct GpuOptions {
  bool asked = false;  // --device cuda; without it the rest means nothing
  GpuWay way = GpuWay::kAuto;
  bool raw = false;             // NCCL's own calls are timed beside ours
  bool copy = false;            // the driver's copy of as many bytes is timed beside each row
  std::vector<int> devices;     // by local rank, in turn; empty: local rank modulo how many there are
  bool share = false;           // ranks may share a GPU and go by NCCL all the same
  uint64_t threads = 0;         // ranks are so many threads of this process; 0: processes
  uint64_t aggregated = 1;      // calls in one group
  uint64_t graph_launches = 0;  // 0: no graph
  bool blocking = false;        // the host waits for every call, and for the other ranks
  bool host_time = false;       // is what is reported
  Average average = Average::kMean;
  uint64_t cycles = 1;  // 0: without end
  bool in_place = true, out_of_place = true;
};

}  // namespace pc::bench
