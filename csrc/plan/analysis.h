// The stages of check(), in the order in which they run. Each stage relies on what the earlier ones
// have established.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace pc {

using Plans = std::span<const Plan>;  // one per rank, in rank order

inline bool is_receive(StepKind kind) { return kind == StepKind::kRecv || kind == StepKind::kRecvReduce; }
inline bool is_reduction(StepKind kind) { return kind == StepKind::kRecvReduce || kind == StepKind::kReduce; }
inline bool is_message(StepKind kind) { return kind == StepKind::kSend || is_receive(kind); }

// Returns an error that reads "ring allreduce, rank 2 of 4: step 3 (recv_reduce chunk 1 <- rank 1)
// <what>".
Status step_error(const Plan& plan, uint32_t index, const std::string& what);
Status plan_error(const Plan& plan, const std::string& what);
std::string step_text(const Plan& plan, uint32_t index);  // "step 3 (recv_reduce chunk 1 <- rank 1)"

// Stage 1, structure.cc: checks each plan by itself: ranges and peers, that areas exist, that
// `after` refers to an earlier step, and that unused fields are zero.
Status check_structure(Plans plans);
// `first` is rank 0's plan
Status check_structure_of(const Plan& plan, Rank rank, Rank size, const Plan& first);

// Stage 2, schedule.cc: finds which send feeds which receive, and one order in which all steps can
// run.
struct StepRef {
  Rank rank;
  uint32_t index;
};
struct Schedule {
  // [rank][step]: the index of the matching step on `peer`; 0 for local steps
  std::vector<std::vector<uint32_t>> partner;
  // every step once, in order: a send when it is posted, any other step when it is complete
  std::vector<StepRef> order;
};
// Fails if messages do not match or if the plans deadlock. A send counts as complete only when it
// is received. This is the worst case: otherwise steps can only begin earlier, so plans that end in
// this case always end.
Result<Schedule> make_schedule(Plans plans);

// Stage 3, happens_before.cc: finds what has certainly happened when a step begins, at any relative
// speed of the ranks.
class HappensBefore {
 public:
  HappensBefore(Plans plans, const Schedule& schedule);  // both must outlive this object
  // Returns true if, on `rank`, step `a` has finished with its memory before step `b` can access
  // any memory.
  bool ends_before(Rank rank, uint32_t a, uint32_t b) const;
  // Returns true if `rank` cannot end before `other` has begun.
  bool ends_after_begin_of(Rank rank, Rank other) const;

 private:
  std::size_t chain(Rank rank, uint8_t lane) const {
    return first_chain_[static_cast<std::size_t>(rank)] + lane;
  }
  const uint32_t* known(Rank rank, uint32_t step) const;

  Plans plans_;
  const Schedule& schedule_;
  std::size_t chains_ = 0;  // total number of lanes of all ranks
  // [rank]: the index of the rank's first lane among the lanes of all ranks
  std::vector<std::size_t> first_chain_;
  // [rank]: the index of the rank's first step among the steps of all ranks
  std::vector<std::size_t> first_step_;
  // [step][chain], where a chain is one lane of one rank: 1 + the last step of the chain that is
  // certainly posted or complete once `step` is
  std::vector<uint32_t> known_;
};

// Stage 4, hazards.cc: looks for two steps of one rank that may access the same memory at the same
// time, at least one of them to write.
Status check_hazards(Plans plans, const HappensBefore& order);

// Replaces stages 3 and 4 for very many ranks. local_hazards.cc looks for the same hazards in one
// plan alone, and refuses a plan that it cannot prove to be free of hazards.
Status check_local_hazards(const Plan& plan);

}  // namespace pc
