#include "plan/analysis.h"
#include "plan/contracts.h"

namespace pc {
namespace {

bool starts_with_same_words(const Plan& a, const Plan& b) {
  return a.algorithm == b.algorithm && a.shape.collective == b.shape.collective &&
         a.shape.size == b.shape.size && a.shape.root == b.shape.root && a.shape.split == b.shape.split &&
         a.shape.even == b.shape.even && a.chunks == b.chunks;
}

bool is_there(const Plan& plan, Area area, Chunks chunks) {
  if (area != Area::kScratch) return held(plan.shape, plan.chunks, area).has(chunks);
  return uint64_t{chunks.first} + chunks.count <= plan.scratch_chunks;
}

// This and the functions below describe the error, or return an empty text if there is none.
std::string wrong_memory(const Plan& plan, Area area, Chunks chunks) {
  if (area > Area::kScratch) return "names an area that does not exist";
  if (chunks.count == 0)
    return chunks.first == 0 && area == Area::kOutput ? "" : "names an empty place in memory";
  if (!is_there(plan, area, chunks)) return "uses memory that this rank does not have";
  if (area == Area::kScratch && chunks.count != 1 && !packs(plan.shape))
    return "uses more than one chunk of scratch";
  return "";
}

// Checks the side of a message that is no memory of this rank. If the other side is scratch, this
// side must name the array chunks; otherwise it must be empty.
std::string wrong_name(const Plan& plan, Area memory, Chunks in_memory, Area area, Chunks chunks) {
  if (area != Area::kOutput) return "has an area on the side that it does not use";
  if (memory != Area::kScratch)
    return chunks == Chunks{} ? "" : "has chunks on the side that it does not use";
  if (chunks.count != in_memory.count || uint64_t{chunks.first} + chunks.count > plan.chunks)
    return "does not name the chunk that scratch holds";
  return "";
}

std::string wrong_local(const Step& step) {
  if (step.peer != -1) return "has a peer but sends no message";
  if ((step.src_area == Area::kScratch) == (step.dst_area == Area::kScratch)) {
    // Input and output may be the same memory (in place), and chunks of scratch alone do not
    // determine a size.
    return "must have scratch on exactly one side";
  }
  if (step.src.count != 1 || step.dst.count != 1) return "must move exactly one chunk";
  return "";
}

std::string wrong_sides(const Plan& plan, const Step& step) {
  std::string wrong;
  if (is_receive(step.kind)) {
    wrong = wrong_name(plan, step.dst_area, step.dst, step.src_area, step.src);
  } else {
    wrong = wrong_memory(plan, step.src_area, step.src);
  }
  if (!wrong.empty()) return wrong;
  if (step.kind == StepKind::kSend) return wrong_name(plan, step.src_area, step.src, step.dst_area, step.dst);
  if (step.dst_area == Area::kInput) return "writes the input, which belongs to the caller";
  return wrong_memory(plan, step.dst_area, step.dst);
}

std::string wrong_weights(const Plan& plan, const Step& step) {
  if (!is_reduction(step.kind))
    return step.dst_weight + step.src_weight == 0 ? "" : "has weights but does not reduce";
  if (step.dst_weight == 0 || step.src_weight == 0) return "reduces without weights";
  return step.dst_weight + step.src_weight <= plan.shape.size ? "" : "has weights beyond the number of ranks";
}

std::string wrong_step(const Plan& plan, uint32_t index) {
  const Step& step = plan.steps[index];
  if (step.kind > StepKind::kCopy) return "is of no known kind";
  if (step.lane >= plan.lanes) return "is in a lane that the plan does not have";
  if (step.after > index) return "waits for a step that is not before it";
  if (is_message(step.kind)) {
    if (step.peer < 0 || step.peer >= plan.shape.size) return "has a peer that is not in the group";
    if (step.peer == plan.shape.rank) return "sends a message to its own rank";
  } else if (std::string wrong = wrong_local(step); !wrong.empty()) {
    return wrong;
  }
  if (std::string wrong = wrong_sides(plan, step); !wrong.empty()) return wrong;
  return wrong_weights(plan, step);
}

}  // namespace

Status check_structure_of(const Plan& plan, Rank rank, Rank size, const Plan& first) {
  const Shape& shape = plan.shape;
  if (shape.rank != rank) return plan_error(plan, "stands at the place of another rank");
  if (shape.size != size) return plan_error(plan, "is for another number of ranks");
  if (!starts_with_same_words(plan, first)) return plan_error(plan, "is for another call than rank 0's");
  if (shape.root < 0 || shape.root >= shape.size)
    return plan_error(plan, "has a root that is not in the group");
  if (!right_chunks(shape, plan.chunks)) return plan_error(plan, "has the wrong number of chunks");
  if (plan.lanes == 0) return plan_error(plan, "has no lane");
  for (uint32_t i = 0; i < plan.steps.size(); ++i) {
    if (std::string wrong = wrong_step(plan, i); !wrong.empty()) return step_error(plan, i, wrong);
  }
  return Status::ok();
}

Status check_structure(Plans plans) {
  if (plans.empty()) return Status(Code::kInternal, "there are no plans to check");
  if (plans.size() > kMostRanks) return plan_error(plans[0], "has more ranks than weights can count");
  const Rank size = static_cast<Rank>(plans.size());
  for (Rank rank = 0; rank < size; ++rank)
    PC_TRY(check_structure_of(plans[static_cast<std::size_t>(rank)], rank, size, plans[0]));
  return Status::ok();
}

}  // namespace pc
