// The execution of one plan: the position of each lane, the messages in flight, and the result.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/bind.h"
#include "engine/plan/plan_cache.h"
#include "engine/request.h"
#include "engine/run.h"
#include "kernels/reduce.h"
#include "transport/reactor.h"
#include "transport/transport.h"

namespace pc {

// Allocates nothing once its vectors have grown.
class PlanRun final : public Run {
 public:
  PlanRun(Transport& transport, const Algorithm& algorithm, std::shared_ptr<const CompiledPlan> plan)
      : transport_(transport),
        algorithm_(algorithm),
        plan_(std::move(plan)) {}

  bool runs(const Algorithm& algorithm, const Shape& shape) const {
    return &algorithm_ == &algorithm && plan_->plan.shape == shape;
  }
  void prepare(const Request& request, const Launch& launch);  // not while it runs
  void start(Scratch& scratch) override;  // copies input to output, then posts what can be posted
  void advance() override;                // takes completions and makes as much progress as possible
  void end(Status result) override;
  std::string where() const override;
  Rank waits_for() const override;

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  // Reduces verified segments of one message into the destination while later segments are still in
  // flight. For a plain receive into memory that is not contiguous, copies the segments instead.
  struct Reducer final : SegmentSink {
    void consume(uint64_t offset, std::span<const std::byte> data) override;
    void combine(std::byte* to, const std::byte* from, std::size_t nbytes) const;
    Location dst;
    bool copies = false;  // copies instead of reducing
    DType dtype = DType::kU8;
    Reduction op;
    Weights weights;
  };
  struct Lane {
    uint32_t position = 0;      // index into CompiledPlan::lane_steps
    bool step_started = false;  // whether the step at `position` has started
    Reducer reducer;            // of the receive in flight; a lane has at most one
  };
  enum StepState : uint8_t { kNotStarted, kInFlight, kComplete };

  template <class Action>
  void guarded(Action&& action);
  void begin(Scratch& scratch);
  bool writes() const;
  void pack(std::byte* memory);
  void unpack();
  void go_on();
  void reduce_single_contribution();
  bool advance_lane(uint32_t index);
  void start_step(uint32_t step, Lane& lane);
  void run_locally(const Step& step);
  void take(Completion&& completion);
  void set_state(uint32_t step, StepState state);
  StepState state_of(uint32_t step) const;
  Location at(Area area, Chunks chunks) const;
  MessageId id_of(uint32_t step) const;
  Weights weights_of(const Step& step) const;
  Status explain_failure(const Completion& completion) const;
  uint32_t waiting_step() const;  // returns kNone if no step is in flight
  std::string describe(uint32_t step) const;

  Transport& transport_;
  const Algorithm& algorithm_;
  const std::shared_ptr<const CompiledPlan> plan_;
  Geometry geometry_;
  std::byte* scratch_ = nullptr;
  // The arrays of the call: contiguous, or in the pieces of `list_`.
  std::byte *input_ = nullptr, *output_ = nullptr;
  const IoVec* list_ = nullptr;
  std::byte* packed_ = nullptr;  // contiguous copy of a small list; null if there is none
  std::vector<Lane> lanes_;
  std::vector<uint8_t> states_;  // StepState per step; accessed atomically because where() reads them
  std::size_t incomplete_ = 0;
};

}  // namespace pc
