// Times one operation at one size, wherever its arrays lie, and verifies its results.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "bench/host_arrays.h"
#include "bench/latencies.h"
#include "bench/options.h"
#include "comm/devices.h"

namespace pc::bench {

// Of one call, the same on all ranks.
struct Times {
  Latencies done = {};                // until it has ended. On GPUs p50 and p99 are of the rounds
  Latencies queued = {};              // on GPUs: how long it keeps the host
  std::vector<double> rounds_s = {};  // on GPUs: of a call that is done, on average over each round
};

// In place or out of place.
struct Half {
  Times time = {};
  std::optional<Times> raw = {};           // of NCCL's own call; nothing: it is not compared with
  double algbw = 0, busbw = 0;             // GB/s
  std::optional<uint64_t> wrong = {};      // elements, over all ranks; nothing: not checked
  std::optional<uint64_t> raw_wrong = {};  // likewise, of the results of NCCL's own call
};

struct Row {
  Case what;
  uint64_t nbytes = 0;  // of the larger array
  uint64_t count = 0;   // elements, of one part if an array has parts
  uint64_t iterations = 0;
  std::optional<Half> out_of_place = {}, in_place = {};  // nothing: not measured
  std::optional<double> copy_s = {};                     // MeasuredDevice::time_copy()

  // The only one, where there is only one.
  Half& half() { return in_place ? *in_place : *out_of_place; }
  const Half& half() const { return in_place ? *in_place : *out_of_place; }
};

using Route = Devices::Route;  // of calls on GPUs: the same on all ranks

// The calls of one operation on arrays of one size, which are zeros at first. When a method returns they have ended. Collective.
class Calls {
 public:
  virtual ~Calls() = default;
  virtual Status time(const Effort& effort, Half& half) = 0;  // and NCCL's own, if they are compared with
  // This rank's wrong elements, after one call as they are timed; `raw`: of NCCL's own.
  virtual Result<uint64_t> count_wrong(const Asked& asked, bool raw) = 0;
};

// Where the arrays of a group's ranks lie, and how calls on them are made and timed. Collective.
class MeasuredDevice {
 public:
  explicit MeasuredDevice(Communicator& group) : group_(group) {}
  virtual ~MeasuredDevice() = default;
  Communicator& group() const { return group_; }
  // kUnsupported: it cannot be measured here, and why.
  virtual Result<Route> route_of(const Case&) const { return Route(); }
  virtual Result<std::unique_ptr<Calls>> prepare(const Case& what, const ArrayKind& arrays) = 0;
  // Of the driver's copy of as many bytes, on rank 0, whose GPU does nothing else meanwhile; nothing: not asked for.
  virtual Result<std::optional<double>> time_copy(uint64_t) { return std::optional<double>(); }

 private:
  Communicator& group_;
};

// Collective.
Result<Row> measure(MeasuredDevice& device, const Case& what, uint64_t nbytes, const Effort& effort);

}  // namespace pc::bench
