#include "plan/analysis.h"
#include "plan/contracts.h"

namespace pc {
namespace {

struct Access {
  uint32_t step;
  Area area;
  bool write;
};

// Who touches which chunk on one rank. Input and output count as the same memory where both exist: they are, in place.
std::vector<std::vector<Access>> accesses_by_chunk(const Plan& plan) {
  std::vector<std::vector<Access>> cells(2 * std::size_t{plan.chunks} + plan.scratch_chunks);
  const bool in_place = has_input(plan.shape) && has_output(plan.shape);
  const auto touch = [&](uint32_t step, Area area, Chunks chunks, bool write) {
    std::size_t first = chunks.first;
    if (area == Area::kScratch) first += 2 * std::size_t{plan.chunks};
    if (area == Area::kOutput && !in_place) first += plan.chunks;
    for (std::size_t c = 0; c < chunks.count; ++c) cells[first + c].push_back({step, area, write});
  };
  for (uint32_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    if (!is_receive(step.kind)) touch(i, step.src_area, step.src, false);
    if (step.kind != StepKind::kSend) touch(i, step.dst_area, step.dst, true);
  }
  return cells;
}

Status check_pair(const Plan& plan, const HappensBefore& order, const Access& a, const Access& b) {
  if (!a.write && !b.write) return Status::ok();
  const Rank rank = plan.shape.rank;
  const bool a_first = order.ends_before(rank, a.step, b.step);
  if (!a_first && !order.ends_before(rank, b.step, a.step)) {
    const Access& writer = b.write ? b : a;
    const Access& other = b.write ? a : b;
    const bool sending = plan.steps[other.step].kind == StepKind::kSend;
    return step_error(plan, writer.step,
                      "may write its memory while " + step_text(plan, other.step) +
                          (other.write ? " writes it too" : " still reads it") + ": nothing orders them" +
                          (sending ? " (a send reads until it is complete: see `after`)" : ""));
  }
  const Access& first = a_first ? a : b;
  const Access& second = a_first ? b : a;
  if (first.area == Area::kOutput && second.area == Area::kInput) {
    return step_error(plan, second.step,
                      "reads the input after " + step_text(plan, first.step) +
                          " has written the output, which is the same memory in place");
  }
  return Status::ok();
}

}  // namespace

Status check_hazards(Plans plans, const HappensBefore& order) {
  for (const Plan& plan : plans) {
    for (const std::vector<Access>& cell : accesses_by_chunk(plan)) {
      for (std::size_t j = 1; j < cell.size(); ++j) {
        for (std::size_t i = 0; i < j; ++i) PC_TRY(check_pair(plan, order, cell[i], cell[j]));
      }
    }
  }
  return Status::ok();
}

}  // namespace pc
