#include "bench/host_device.h"

#include <utility>
#include <vector>

#include "base/clock.h"
#include "bench/groups.h"
#include "bench/host_arrays.h"

namespace pc::bench {
namespace {

class HostCalls final : public Calls {
 public:
  HostCalls(Communicator& group, bool one_clock, const Case& what, HostArrays arrays)
      : group_(group),
        one_clock_(one_clock),
        what_(what),
        arrays_(std::move(arrays)) {}

  // A call lasts from the time at which the slowest rank completed the previous call until the
  // slowest rank completes this one. Without a common clock, each rank measures from its own
  // completion to the next, and the longest duration counts.
  Status time(const Effort& effort, Half& half) override {
    PC_ASSIGN_OR_RETURN(std::vector<int64_t> ends, completions(effort));
    if (one_clock_) PC_TRY(allreduce(group_, ends, ReduceOp::kMax));
    int64_t total_ns = ends.back() - ends.front();
    std::vector<int64_t> each = differences(ends);
    if (!one_clock_) {
      PC_TRY(allreduce(group_, each, ReduceOp::kMax));
      PC_TRY(allreduce(group_, {&total_ns, 1}, ReduceOp::kMax));
    }
    half.time.done = latencies(each, total_ns, what_.operation->trips);
    return Status::ok();
  }

  Result<uint64_t> count_wrong(const Asked& asked, bool) override {
    arrays_.fill(asked);
    PC_TRY(what_.operation->run(group_, asked, arrays_.arrays()));
    return arrays_.count_wrong(asked);
  }

 private:
  // Returns the times at which this rank completed each call; the first entry is the start of the
  // timing.
  Result<std::vector<int64_t>> completions(const Effort& effort) {
    Asked asked = {what_.op, what_.root.value_or(0)};
    const auto call = [&] {
      PC_TRY(what_.operation->run(group_, asked, arrays_.arrays()));
      if (!what_.root) asked.root = (asked.root + 1) % group_.size();
      return Status::ok();
    };
    PC_TRY(group_.run(Request{}));
    for (uint64_t i = 0; i < effort.warm_up; ++i) PC_TRY(call());
    std::vector<int64_t> ends(effort.iterations + 1);
    for (int64_t& end : ends) {
      PC_TRY(call());
      end = now_ns();
    }
    PC_TRY(group_.run(Request{}));
    return ends;
  }

  Communicator& group_;
  const bool one_clock_;
  const Case what_;
  HostArrays arrays_;
};

class HostDevice final : public MeasuredDevice {
 public:
  HostDevice(Communicator& group, bool one_clock) : MeasuredDevice(group), one_clock_(one_clock) {}
  Result<std::unique_ptr<Calls>> prepare(const Case& what, const ArrayKind& arrays) override {
    PC_ASSIGN_OR_RETURN(HostArrays made, HostArrays::create(arrays));
    return std::unique_ptr<Calls>(std::make_unique<HostCalls>(group(), one_clock_, what, std::move(made)));
  }

 private:
  const bool one_clock_;
};

}  // namespace

std::unique_ptr<MeasuredDevice> host_device(Communicator& group, bool one_clock) {
  return std::make_unique<HostDevice>(group, one_clock);
}

}  // namespace pc::bench
