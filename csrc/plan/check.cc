// check() decides whether plans are right on any transport and with any timing. The argument:
//
//   structure      Every step is valid.
//   schedule       Every message has a sender and a receiver, and no steps wait in a circle. There
//                  are no branches and no receives from "any rank", so the plans form a Kahn
//                  network: timing can change when steps run, but not what they do, if no two steps
//                  race for memory.
//   hazards        No two steps race for memory.
//   result         Therefore one run, in any order, represents all runs. On fingerprints it must
//                  deliver the collective's contract.
#include "plan/analysis.h"
#include "plan/contracts.h"

namespace pc {

std::string step_text(const Plan& plan, uint32_t index) {
  return "step " + std::to_string(index) + " (" + to_string(plan.steps[index]) + ")";
}

Status plan_error(const Plan& plan, const std::string& what) {
  return Status(Code::kInternal, "the plan " + what)
      .with_rank(plan.shape.rank)
      .with_operation(std::string(plan.algorithm) + " " + std::string(name_of(plan.shape.collective)) +
                      " of " + std::to_string(plan.shape.size) + " ranks");
}

Status step_error(const Plan& plan, uint32_t index, const std::string& what) {
  const Status context = plan_error(plan, "");
  return Status(Code::kInternal, step_text(plan, index) + " " + what)
      .with_rank(context.rank())
      .with_operation(context.operation());
}

namespace {

std::string counted(const Fingerprint& value, Rank size) {
  if (value.contributions > static_cast<uint64_t>(size)) return "unwritten memory or too many contributions";
  return std::to_string(value.contributions) + " of " + std::to_string(size) + " contributions";
}

// The memory of all ranks while the plans run on fingerprints.
class Memory {
 public:
  explicit Memory(Plans plans) {
    for (const Plan& plan : plans) {
      const Shape& shape = plan.shape;
      Cells cells{held(shape, plan.chunks, Area::kInput), held(shape, plan.chunks, Area::kOutput), {}};
      for (uint32_t i = 0; i < cells.input.count; ++i)
        cells.values.push_back(first_input(shape, plan.chunks, i));
      for (uint32_t i = 0; i < cells.output.count; ++i)
        cells.values.push_back(first_output(shape, plan.chunks, i));
      for (uint32_t i = 0; i < plan.scratch_chunks; ++i)
        cells.values.push_back(never_written(shape.rank, Area::kScratch, i));
      ranks_.push_back(std::move(cells));
    }
  }

  // `chunk` is a chunk of scratch, or the name of a chunk that this input or output contains.
  Fingerprint& at(Rank rank, Area area, uint32_t chunk) {
    Cells& cells = ranks_[static_cast<std::size_t>(rank)];
    if (area == Area::kInput) return cells.values[cells.input.place(chunk)];
    if (area == Area::kOutput) return output(rank, cells.output.place(chunk));
    return cells.values[cells.input.count + cells.output.count + chunk];
  }
  Fingerprint& output(Rank rank, uint32_t place) {
    Cells& cells = ranks_[static_cast<std::size_t>(rank)];
    return cells.values[cells.input.count + place];
  }

 private:
  struct Cells {  // of one rank: input, output, scratch
    Held input, output;
    std::vector<Fingerprint> values;
  };
  std::vector<Cells> ranks_;
};

// Runs one step that is not a send. A receive reads the sender's memory, which cannot have changed
// since the send was posted.
Status run_step(Plans plans, const Schedule& schedule, Memory& memory, StepRef at) {
  const Plan& plan = plans[static_cast<std::size_t>(at.rank)];
  const Step& step = plan.steps[at.index];
  Rank source = at.rank;
  const Step* reader = &step;
  if (is_receive(step.kind)) {
    source = step.peer;
    reader = &plans[static_cast<std::size_t>(source)]
                  .steps[schedule.partner[static_cast<std::size_t>(at.rank)][at.index]];
  }
  for (uint32_t c = 0; c < step.dst.count; ++c) {
    const Fingerprint operand = memory.at(source, reader->src_area, reader->src.first + c);
    Fingerprint& dst = memory.at(at.rank, step.dst_area, step.dst.first + c);
    if (!is_reduction(step.kind)) {
      dst = operand;
      continue;
    }
    if (dst.contributions != step.dst_weight) {
      return step_error(plan, at.index,
                        "says dst_weight " + std::to_string(step.dst_weight) +
                            ", but its destination holds " + counted(dst, plan.shape.size));
    }
    if (operand.contributions != step.src_weight) {
      return step_error(plan, at.index,
                        "says src_weight " + std::to_string(step.src_weight) + ", but gets " +
                            counted(operand, plan.shape.size));
    }
    dst = dst + operand;
  }
  return Status::ok();
}

Status check_result(Plans plans, const Schedule& schedule) {
  Memory memory(plans);
  for (const StepRef& at : schedule.order) {
    const Step& step = plans[static_cast<std::size_t>(at.rank)].steps[at.index];
    if (step.kind != StepKind::kSend) PC_TRY(run_step(plans, schedule, memory, at));
  }
  for (const Plan& plan : plans) {
    const Held names = held(plan.shape, plan.chunks, Area::kOutput);
    for (uint32_t i = 0; i < names.count; ++i) {
      const Fingerprint wanted = wanted_output(plan.shape, plan.chunks, i);
      const Fingerprint& got = memory.output(plan.shape.rank, i);
      if (got == wanted) continue;
      const bool mixed_up = got.contributions == wanted.contributions;
      return plan_error(plan, "ends with a wrong chunk " + std::to_string(names.name(i)) + ": it holds " +
                                  (mixed_up ? "the right number of contributions, but not the right ones"
                                            : counted(got, plan.shape.size)));
    }
  }
  return Status::ok();
}

Status check_synchronizes(Plans plans, const HappensBefore& order) {
  for (const Plan& plan : plans) {
    for (const Plan& other : plans) {
      if (order.ends_after_begin_of(plan.shape.rank, other.shape.rank)) continue;
      return plan_error(plan, "can end before rank " + std::to_string(other.shape.rank) + " has begun")
          .with_peer(other.shape.rank);
    }
  }
  return Status::ok();
}

}  // namespace

Status check(Plans plans) {
  PC_TRY(check_structure(plans));
  PC_ASSIGN_OR_RETURN(const Schedule schedule, make_schedule(plans));
  const HappensBefore order(plans, schedule);
  PC_TRY(check_hazards(plans, order));
  if (synchronizes(plans[0].shape.collective)) PC_TRY(check_synchronizes(plans, order));
  return check_result(plans, schedule);
}

}  // namespace pc
