// The parts of check(), in the order in which it runs them. Each may rely on what the earlier ones have established.
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

// "ring allreduce, rank 2 of 4: step 3 (recv_reduce chunk 1 <- rank 1) <what>".
Status step_error(const Plan& plan, uint32_t index, const std::string& what);
Status plan_error(const Plan& plan, const std::string& what);
std::string step_text(const Plan& plan, uint32_t index);  // "step 3 (recv_reduce chunk 1 <- rank 1)"

// 1. structure.cc: every plan by itself. Ranges, peers, areas that exist, `after` backwards, unused fields left alone.
Status check_structure(Plans plans);
Status check_structure_of(const Plan& plan, Rank rank, Rank size, const Plan& first);  // first: rank 0's

// 2. schedule.cc: which send feeds which receive, and one order in which everything can happen.
struct StepRef {
  Rank rank;
  uint32_t index;
};
struct Schedule {
  std::vector<std::vector<uint32_t>>
      partner;                 // [rank][step]: the other end's index on `peer`; 0 for local steps
  std::vector<StepRef> order;  // every step once: sends when they are posted, others when complete
};
// Fails if messages do not match, or if the plans wait for each other. Sends complete only when they are received, the
// worst case: where that ends, it ends in every case, because steps only ever become possible.
Result<Schedule> make_schedule(Plans plans);

// 3. happens_before.cc: what has certainly happened when a step begins, however slow or fast anything else is.
class HappensBefore {
 public:
  HappensBefore(Plans plans, const Schedule& schedule);  // both outlive this
  // True if on `rank` step `a` is through with its memory before step `b` can touch its own.
  bool ends_before(Rank rank, uint32_t a, uint32_t b) const;
  // True if `rank` cannot end before `other` has begun.
  bool ends_after_begin_of(Rank rank, Rank other) const;

 private:
  std::size_t chain(Rank rank, uint8_t lane) const {
    return first_chain_[static_cast<std::size_t>(rank)] + lane;
  }
  const uint32_t* known(Rank rank, uint32_t step) const;

  Plans plans_;
  const Schedule& schedule_;
  std::size_t chains_ = 0;                // lanes of all ranks
  std::vector<std::size_t> first_chain_;  // per rank
  std::vector<std::size_t> first_step_;   // per rank, in known_
  std::vector<uint32_t> known_;  // [step][chain]: 1 + the last step there known to be posted or complete
};

// 4. hazards.cc: two steps of one rank that may touch the same memory at the same time, at least one writing.
Status check_hazards(Plans plans, const HappensBefore& order);

// Instead of 3 and 4 for very many ranks. local_hazards.cc: the same question, answered from one plan alone. Where no answer
// is found the plan is refused.
Status check_local_hazards(const Plan& plan);

}  // namespace pc
