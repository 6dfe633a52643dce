// The plans of all ranks of one call, one at a time, so that a walk over ten thousand ranks need
// not hold all plans in memory. A ring of 10,240 ranks has 419 million steps, which take 13 GB. A
// builder is a pure function, so a plan that was dropped is built again when its rank is visited
// again.
#pragma once

#include <span>
#include <vector>

#include "plan/plan.h"

namespace pc {

// Thread-safety: none.
class PlanSource {
 public:
  virtual ~PlanSource() = default;
  virtual Rank size() const = 0;
  virtual const Plan& of(Rank rank) = 0;  // valid until the next call
  virtual bool keeps_all() const = 0;     // true: all plans stay in memory, and of() is cheap
  // Checks what a walk relies on. Does nothing for plans of the catalog, which tests have checked.
  virtual Status check_structure() const = 0;
};

class GivenPlans final : public PlanSource {
 public:
  explicit GivenPlans(std::span<const Plan> plans) : plans_(plans) {}
  Rank size() const override { return static_cast<Rank>(plans_.size()); }
  const Plan& of(Rank rank) override { return plans_[static_cast<std::size_t>(rank)]; }
  bool keeps_all() const override { return true; }
  Status check_structure() const override;

 private:
  std::span<const Plan> plans_;
};

class BuiltPlans final : public PlanSource {
 public:
  static constexpr uint64_t kKeptNbytes = uint64_t{256} << 20;
  // The algorithm must support the shape. The shape's rank is ignored.
  BuiltPlans(const Algorithm& algorithm, const Shape& shape, uint64_t keep_nbytes = kKeptNbytes);
  Rank size() const override { return shape_.size; }
  const Plan& of(Rank rank) override;
  bool keeps_all() const override { return !kept_.empty(); }
  Status check_structure() const override { return Status::ok(); }
  // Returns an estimate for all ranks: `size` times the steps of the rank in the middle.
  uint64_t steps() const { return steps_; }

 private:
  Plan build(Rank rank) const;

  const Algorithm& algorithm_;
  Shape shape_;
  uint64_t steps_ = 0;
  std::vector<Plan> kept_;  // all plans, or empty
  Plan current_;
};

}  // namespace pc
