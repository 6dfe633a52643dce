#include "plan/mutants.h"

#include <algorithm>
#include <utility>

namespace pc {
namespace {

using Visit = std::function<void(std::span<const Plan>, const std::string&, const std::string&)>;

class Mutator {
 public:
  Mutator(const std::vector<Plan>& plans, const Visit& visit)
      : original_(plans),
        plans_(plans),
        visit_(visit) {}

  void run() {
    for (rank_ = 0; rank_ < plans_.size(); ++rank_) {
      change_plan();
      for (index_ = 0; index_ < original_[rank_].steps.size(); ++index_) {
        change_fields();
        change_list();
      }
    }
  }

 private:
  // Shows one edit of this rank's plan, then reverts it.
  template <class Edit>
  void show(const std::string& field, const std::string& value, Edit edit) {
    Plan& plan = plans_[rank_];
    edit(plan);
    if (plan.steps != original_[rank_].steps || plan.lanes != original_[rank_].lanes ||
        plan.scratch_chunks != original_[rank_].scratch_chunks || plan.chunks != original_[rank_].chunks) {
      visit_(
          plans_, field,
          "rank " + std::to_string(rank_) + " step " + std::to_string(index_) + ": " + field + " " + value);
    }
    plan = original_[rank_];
  }
  // Shows a field of this step with every value from `first` to `last`.
  template <class Field>
  void sweep(const std::string& field, int64_t first, int64_t last, Field of) {
    for (int64_t value = first; value <= last; ++value) {
      show(field, std::to_string(value), [&](Plan& plan) {
        auto& target = of(plan.steps[index_]);
        target = static_cast<std::remove_reference_t<decltype(target)>>(value);
      });
    }
  }

  void change_plan() {
    index_ = 0;
    show("scratch_chunks", "+1", [](Plan& plan) { ++plan.scratch_chunks; });
    show("chunks", "+1", [](Plan& plan) { ++plan.chunks; });
    show("lanes", "+1", [](Plan& plan) { ++plan.lanes; });
    if (original_[rank_].scratch_chunks > 0)
      show("scratch_chunks", "-1", [](Plan& plan) { --plan.scratch_chunks; });
  }

  void change_fields() {
    const Plan& plan = original_[rank_];
    const int64_t size = plan.shape.size, chunks = std::max(plan.chunks, plan.scratch_chunks);
    sweep("kind", 0, 5, [](Step& step) -> StepKind& { return step.kind; });
    sweep("area", 0, 3, [](Step& step) -> Area& { return step.src_area; });
    sweep("area", 0, 3, [](Step& step) -> Area& { return step.dst_area; });
    sweep("chunk", 0, chunks, [](Step& step) -> uint32_t& { return step.src.first; });
    sweep("chunk", 0, chunks, [](Step& step) -> uint32_t& { return step.dst.first; });
    sweep("count", 0, 2, [](Step& step) -> uint32_t& { return step.src.count; });
    sweep("count", 0, 2, [](Step& step) -> uint32_t& { return step.dst.count; });
    sweep("peer", -1, size, [](Step& step) -> Rank& { return step.peer; });
    sweep("after", 0, static_cast<int64_t>(index_) + 1, [](Step& step) -> uint32_t& { return step.after; });
    sweep("weight", 0, size, [](Step& step) -> uint16_t& { return step.dst_weight; });
    sweep("weight", 0, size, [](Step& step) -> uint16_t& { return step.src_weight; });
    sweep("lane", 1, 1, [](Step& step) -> uint8_t& { return step.lane; });
    show("new lane", "", [&](Plan& mutant) {
      mutant.lanes = 2;
      mutant.steps[index_].lane = 1;
    });
  }

  // Adapts every `after` to a changed list of steps, so that it still refers to the same step.
  static void renumber(Plan& plan, const std::function<uint32_t(uint32_t)>& to) {
    for (Step& step : plan.steps) {
      if (step.after > 0) step.after = to(step.after);
    }
  }
  void change_list() {
    const uint32_t self = static_cast<uint32_t>(index_) + 1;  // `after` counts steps from 1
    show("deleted step", "", [&](Plan& plan) {
      plan.steps.erase(plan.steps.begin() + static_cast<std::ptrdiff_t>(index_));
      renumber(plan, [&](uint32_t after) { return after == self ? 0 : after > self ? after - 1 : after; });
    });
    show("doubled step", "", [&](Plan& plan) {
      renumber(plan, [&](uint32_t after) { return after > self ? after + 1 : after; });
      const Step copy = plan.steps[index_];
      plan.steps.insert(plan.steps.begin() + static_cast<std::ptrdiff_t>(index_), copy);
    });
    if (index_ + 1 == original_[rank_].steps.size()) return;
    show("swapped steps", "", [&](Plan& plan) {
      std::swap(plan.steps[index_], plan.steps[index_ + 1]);
      renumber(plan, [&](uint32_t after) {
        return after == self ? self + 1 : after == self + 1 ? self : after;
      });
    });
  }

  const std::vector<Plan>& original_;
  std::vector<Plan> plans_;
  const Visit& visit_;
  std::size_t rank_ = 0, index_ = 0;
};

}  // namespace

void for_each_mutant(const std::vector<Plan>& plans, const Visit& visit) { Mutator(plans, visit).run(); }

}  // namespace pc
