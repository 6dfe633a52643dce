#include "plan/analysis.h"
#include "plan/contracts.h"

namespace pc {
namespace {

struct Access {
  uint32_t step;
  Area area;
  bool write;
};

// Lists which steps access each chunk on one rank. A chunk that both input and output hold counts
// as one memory, which it is if the call is in place.
std::vector<std::vector<Access>> accesses_by_chunk(const Plan& plan) {
  const Held input = held(plan.shape, plan.chunks, Area::kInput);
  const Held output = held(plan.shape, plan.chunks, Area::kOutput);
  const bool shares = in_place(plan.shape.collective);
  const std::size_t arrays = std::size_t{input.count} + output.count;
  std::vector<std::vector<Access>> cells(arrays + plan.scratch_chunks);
  const auto cell = [&](Area area, uint32_t chunk) -> std::size_t {
    if (area == Area::kScratch) return arrays + chunk;
    const bool of_input = area == Area::kInput || (shares && input.has({chunk, 1}));
    return of_input ? input.place(chunk) : input.count + output.place(chunk);
  };
  const auto touch = [&](uint32_t step, Area area, Chunks chunks, bool write) {
    for (uint32_t c = 0; c < chunks.count; ++c)
      cells[cell(area, chunks.first + c)].push_back({step, area, write});
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
