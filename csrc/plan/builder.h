// Builds plans step by step, so that an algorithm reads like its drawing:
//   const uint32_t sent = plan.send(peer, output(0));
//   plan.recv(peer, scratch(0, 0));
//   plan.after(sent).reduce(scratch(0, 0), output(0), {.dst = 1, .src = 1});
#pragma once

#include <utility>

#include "plan/plan.h"

namespace pc {

// A place in memory, and the array chunks that it holds.
struct Place {
  Area area = Area::kOutput;
  Chunks memory = {};
  Chunks moved = {};
};
inline Place nothing() { return {}; }  // for a message without data, which only signals
inline Place input(uint32_t chunk) { return {Area::kInput, {chunk, 1}, {chunk, 1}}; }
inline Place output(uint32_t chunk) { return {Area::kOutput, {chunk, 1}, {chunk, 1}}; }
inline Place inputs(Chunks chunks) { return {Area::kInput, chunks, chunks}; }
inline Place outputs(Chunks chunks) { return {Area::kOutput, chunks, chunks}; }
inline Place scratch(uint32_t slot, uint32_t chunk) { return {Area::kScratch, {slot, 1}, {chunk, 1}}; }

struct Contributions {
  Rank dst = 0;  // number of contributions in the destination before the step
  Rank src = 0;  // number of contributions in the added operand before the step
};

// Every method that appends a step returns the argument for after(): 1 + the step's index.
class PlanBuilder {
 public:
  PlanBuilder(std::string_view algorithm, const Shape& shape, uint32_t chunks, uint32_t scratch_chunks = 0) {
    plan_.algorithm = algorithm;
    plan_.shape = shape;
    plan_.chunks = chunks;
    plan_.scratch_chunks = scratch_chunks;
  }

  uint32_t send(Rank to, const Place& from) {
    Step step{.kind = StepKind::kSend, .src_area = from.area, .peer = to, .src = from.memory};
    if (from.area == Area::kScratch) step.dst = from.moved;
    return append(step);
  }
  uint32_t recv(Rank from, const Place& into) { return receive(StepKind::kRecv, from, into, {}); }
  uint32_t recv_reduce(Rank from, const Place& into, Contributions held) {
    return receive(StepKind::kRecvReduce, from, into, held);
  }
  uint32_t reduce(const Place& from, const Place& into, Contributions held) {
    return local(StepKind::kReduce, from, into, held);
  }
  uint32_t copy(const Place& from, const Place& into) { return local(StepKind::kCopy, from, into, {}); }

  // The next step waits until `step` is complete. With 0 it does not wait.
  PlanBuilder& after(uint32_t step) {
    after_ = step;
    return *this;
  }
  // Puts all following steps into this lane.
  PlanBuilder& lane(uint8_t lane) {
    lane_ = lane;
    if (lane >= plan_.lanes) plan_.lanes = static_cast<uint8_t>(lane + 1);
    return *this;
  }
  // Reserves memory for `steps` steps, which is worthwhile for thousands of steps.
  PlanBuilder& expect(std::size_t steps) {
    plan_.steps.reserve(steps);
    return *this;
  }
  Plan take() { return std::move(plan_); }

 private:
  uint32_t receive(StepKind kind, Rank from, const Place& into, Contributions held) {
    Step step{.kind = kind, .dst_area = into.area, .peer = from, .dst = into.memory};
    if (into.area == Area::kScratch) step.src = into.moved;
    return append(weighted(step, held));
  }
  uint32_t local(StepKind kind, const Place& from, const Place& into, Contributions held) {
    const Step step{
        .kind = kind, .src_area = from.area, .dst_area = into.area, .src = from.memory, .dst = into.memory};
    return append(weighted(step, held));
  }
  static Step weighted(Step step, Contributions held) {
    step.dst_weight = static_cast<uint16_t>(held.dst);
    step.src_weight = static_cast<uint16_t>(held.src);
    return step;
  }
  uint32_t append(Step step) {
    step.lane = lane_;
    step.after = std::exchange(after_, 0);
    plan_.steps.push_back(step);
    return static_cast<uint32_t>(plan_.steps.size());
  }

  Plan plan_;
  uint32_t after_ = 0;
  uint8_t lane_ = 0;
};

}  // namespace pc
