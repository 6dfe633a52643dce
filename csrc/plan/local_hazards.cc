// Proves from the plan of one rank alone that it has no hazards. check_hazards() proves this with
// vector clocks over all ranks. The memory that this proof needs depends on one plan only. A step a
// has finished with its memory before step b begins in these cases:
//
//   lane     a is no send and precedes b in b's lane.
//   after    b, or a step before b in b's lane, waits for a. If a is no send, a wait for a later
//            step of a's lane is enough.
//   return   b's lane has received, before b or by b, a chunk that holds the whole sum of an
//            allreduce, and a is the only send of that chunk that can have been posted before. The
//            sum holds this rank's contribution, which left this rank through a alone. So a's
//            memory has been read, and the steps before a in its lane ended before that.
//
// The return case requires that contributions are sent directly from an array. So it does not apply
// to plans that send from scratch, or copy or add an array into scratch. It also requires a run of
// the plans that received whole sums, which Walk::receives_totals() reports. That run proves
// something only if there are no hazards. Together the two proofs still hold: before a first race
// all data would be the same as in the run, so this proof excludes that race.
//
// The proofs are sound but not complete. A plan without a proof is refused.
#include <algorithm>
#include <vector>

#include "plan/analysis.h"
#include "plan/contracts.h"

namespace pc {
namespace {

class LocalHazards {
 public:
  explicit LocalHazards(const Plan& plan)
      : plan_(plan),
        input_(held(plan.shape, plan.chunks, Area::kInput)),
        output_(held(plan.shape, plan.chunks, Area::kOutput)),
        cells_(std::size_t{input_.count} + output_.count + plan.scratch_chunks),
        known_(std::size_t{plan.lanes} * plan.lanes),
        read_by_(plan.steps.size()) {
    if (plan.shape.collective == Collective::kAllreduce && sends_from_arrays()) find_sends();
  }

  Status check() {
    if (plan_.lanes > 64) return plan_error(plan_, "has more lanes than one pass can follow");
    for (uint32_t i = 0; i < plan_.steps.size(); ++i) {
      const Step& step = plan_.steps[i];
      known(step.lane, step.lane) = i;
      if (step.after > 0) learn(step.lane, step.after - 1);
      if (step.kind == StepKind::kRecv && step.dst_area == Area::kOutput) learn_from_return(i);
      if (!is_receive(step.kind)) PC_TRY(touch(i, step.src_area, step.src, false));
      if (step.kind != StepKind::kSend) PC_TRY(touch(i, step.dst_area, step.dst, true));
    }
    return Status::ok();
  }

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  struct Cell {
    uint32_t written = kNone;  // the step that wrote it last
    Area written_as = Area::kOutput;
    std::vector<uint32_t> reads;  // the steps that have read it since then
    std::vector<Area> read_as;
  };

  uint32_t& known(uint8_t lane, uint8_t other) {
    // the steps of lane `other` with an index below this are known, in `lane`, to have ended
    return known_[std::size_t{lane} * plan_.lanes + other];
  }
  void learn(uint8_t lane, uint32_t step) {
    const Step& done = plan_.steps[step];
    known(lane, done.lane) = std::max(known(lane, done.lane), step + 1);
    read_by_[step] |= uint64_t{1} << lane;
  }

  bool sends_from_arrays() const {
    return std::none_of(plan_.steps.begin(), plan_.steps.end(), [](const Step& step) {
      const bool fills_scratch = !is_message(step.kind) && step.dst_area == Area::kScratch;
      return fills_scratch || (step.kind == StepKind::kSend && step.src_area == Area::kScratch);
    });
  }
  void find_sends() {
    sends_.resize(plan_.chunks);
    for (uint32_t i = 0; i < plan_.steps.size(); ++i) {
      const Step& step = plan_.steps[i];
      for (uint32_t c = 0; step.kind == StepKind::kSend && c < step.src.count; ++c)
        sends_[step.src.first + c].push_back(i);
    }
  }
  void learn_from_return(uint32_t receive) {
    if (sends_.empty()) return;
    const Step& step = plan_.steps[receive];
    for (uint32_t c = 0; c < step.dst.count; ++c) {
      uint32_t only = kNone, how_many = 0;
      for (const uint32_t send : sends_[step.dst.first + c]) {
        if (send > receive && plan_.steps[send].lane == step.lane) continue;  // posted after the receive
        only = send;
        ++how_many;
      }
      if (how_many == 1 && only < receive) learn(step.lane, only);
    }
  }

  bool is_over(uint32_t a, uint8_t lane) {
    const Step& step = plan_.steps[a];
    if (step.kind == StepKind::kSend) return (read_by_[a] >> lane & 1) != 0;
    return a < known(lane, step.lane);
  }

  Status touch(uint32_t i, Area area, Chunks chunks, bool writes) {
    for (uint32_t c = 0; c < chunks.count; ++c)
      PC_TRY(touch_one(i, area, cell(area, chunks.first + c), writes));
    return Status::ok();
  }
  // Compares only with the last write and the reads since then: all earlier accesses ended before
  // that write began.
  Status touch_one(uint32_t i, Area area, Cell& cell, bool writes) {
    if (cell.written != kNone && cell.written != i)
      PC_TRY(compare(cell.written, cell.written_as, i, area, true));
    if (!writes) {
      cell.reads.push_back(i);
      cell.read_as.push_back(area);
      return Status::ok();
    }
    for (std::size_t k = 0; k < cell.reads.size(); ++k) {
      if (cell.reads[k] != i) PC_TRY(compare(cell.reads[k], cell.read_as[k], i, area, false));
    }
    cell = Cell{i, area, {}, {}};
    return Status::ok();
  }
  Status compare(uint32_t a, Area a_area, uint32_t b, Area b_area, bool a_wrote) {
    if (!is_over(a, plan_.steps[b].lane)) {
      return step_error(plan_, b,
                        "may touch memory that " + step_text(plan_, a) +
                            " still uses: nothing in this rank's plan orders them");
    }
    if (a_wrote && a_area == Area::kOutput && b_area == Area::kInput) {
      return step_error(plan_, b,
                        "reads the input after " + step_text(plan_, a) +
                            " has written the output, which is the same memory in place");
    }
    return Status::ok();
  }
  Cell& cell(Area area, uint32_t chunk) {
    const std::size_t arrays = std::size_t{input_.count} + output_.count;
    if (area == Area::kScratch) return cells_[arrays + chunk];
    const bool of_input =
        area == Area::kInput || (in_place(plan_.shape.collective) && input_.has({chunk, 1}));
    return cells_[of_input ? input_.place(chunk) : input_.count + output_.place(chunk)];
  }

  const Plan& plan_;
  const Held input_, output_;
  std::vector<Cell> cells_;
  std::vector<uint32_t> known_;               // [lane][other], see known()
  std::vector<uint64_t> read_by_;             // [send]: one bit per lane that knows that the send is complete
  std::vector<std::vector<uint32_t>> sends_;  // [chunk]; empty if the return proof cannot hold
};

}  // namespace

Status check_local_hazards(const Plan& plan) { return LocalHazards(plan).check(); }

}  // namespace pc
