#include "plan/source.h"

#include <utility>

#include "plan/analysis.h"

namespace pc {

Status GivenPlans::check_structure() const { return pc::check_structure(plans_); }

BuiltPlans::BuiltPlans(const Algorithm& algorithm, const Shape& shape, uint64_t keep_nbytes)
    : algorithm_(algorithm),
      shape_(shape) {
  // a rank in the middle, because the ends of a chain and the roots of trees have special plans
  current_ = build(shape.size / 2);
  steps_ = current_.steps.size() * static_cast<uint64_t>(shape.size);
  if (steps_ * sizeof(Step) > keep_nbytes) return;
  kept_.reserve(static_cast<std::size_t>(shape.size));
  for (Rank rank = 0; rank < shape.size; ++rank) kept_.push_back(build(rank));
}

Plan BuiltPlans::build(Rank rank) const {
  Shape shape = shape_;
  shape.rank = rank;
  return algorithm_.build(shape);
}

const Plan& BuiltPlans::of(Rank rank) {
  if (keeps_all()) return kept_[static_cast<std::size_t>(rank)];
  if (current_.shape.rank == rank) return current_;
  current_ = Plan();  // frees memory that the next plan needs
  current_ = build(rank);
  return current_;
}

}  // namespace pc
