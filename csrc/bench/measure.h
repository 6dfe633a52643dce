// Times one operation at one size, on the host or on GPUs, and verifies its results.
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

// The times of one call, the same on all ranks.
struct Times {
  Latencies done = {};    // until the call has ended. On GPUs p50 and p99 are over the rounds
  Latencies queued = {};  // on GPUs: how long a call keeps the host busy
  // on GPUs: the average time of a call until it has ended, for each round
  std::vector<double> rounds_s = {};
};

// The part of a row that is measured in place, or the part that is measured out of place.
struct Half {
  Times time = {};
  std::optional<Times> raw = {};       // NCCL's own call; nullopt: no comparison
  double algbw = 0, busbw = 0;         // GB/s
  std::optional<uint64_t> wrong = {};  // wrong elements over all ranks; nullopt: not checked
  // wrong elements in the results of NCCL's own call; nullopt: not checked
  std::optional<uint64_t> raw_wrong = {};
};

struct Row {
  Case what;
  uint64_t nbytes = 0;  // size of the larger array
  uint64_t count = 0;   // elements of an array, or of one part if the arrays have parts
  uint64_t iterations = 0;
  std::optional<Half> out_of_place = {}, in_place = {};  // nullopt: not measured
  std::optional<double> copy_s = {};                     // MeasuredDevice::time_copy()

  // Returns the in-place half if there is one, else the other half. For rows with only one half.
  Half& half() { return in_place ? *in_place : *out_of_place; }
  const Half& half() const { return in_place ? *in_place : *out_of_place; }
};

using Route = Devices::Route;  // the path of calls on GPUs, the same on all ranks

// The calls of one operation on arrays of one size, which are zeros at first. When a method
// returns, the calls that it has made have ended. Collective.
class Calls {
 public:
  virtual ~Calls() = default;
  virtual Status time(const Effort& effort, Half& half) = 0;  // also times NCCL's own calls, if requested
  // Makes one call in the same way as the timed calls, and returns this rank's number of wrong
  // elements. `raw` selects NCCL's own call.
  virtual Result<uint64_t> count_wrong(const Asked& asked, bool raw) = 0;
};

// Where the arrays of a group's ranks are stored, and how calls on them are made and timed.
// Collective.
class MeasuredDevice {
 public:
  explicit MeasuredDevice(Communicator& group) : group_(group) {}
  virtual ~MeasuredDevice() = default;
  Communicator& group() const { return group_; }
  // Returns the path of the case's calls. Fails with kUnsupported and the reason if the case cannot
  // be measured here.
  virtual Result<Route> route_of(const Case&) const { return Route(); }
  virtual Result<std::unique_ptr<Calls>> prepare(const Case& what, const ArrayKind& arrays) = 0;
  // Returns the time of the driver's copy of `nbytes` on rank 0, during which its GPU has no other
  // work. Returns nullopt if --copy is not set.
  virtual Result<std::optional<double>> time_copy(uint64_t) { return std::optional<double>(); }

 private:
  Communicator& group_;
};

// Measures one row. Collective.
Result<Row> measure(MeasuredDevice& device, const Case& what, uint64_t nbytes, const Effort& effort);

}  // namespace pc::bench
