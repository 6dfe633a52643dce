// Plans are pure functions of their shape, so they are built once and cached.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "plan/plan.h"

namespace pc {

// A plan, and what the engine derives from it once.
struct CompiledPlan {
  Plan plan;
  std::vector<uint32_t> lane_steps;  // step indices, lane after lane, in list order
  std::vector<uint32_t> lane_begin;  // lane l: lane_steps[lane_begin[l] .. lane_begin[l + 1])
  Chunks shared;                     // the chunks that input and output have in common
  // per step: the index of its message among the messages with the same peer, lane and direction; 0
  // for local steps
  std::vector<uint32_t> message_index;
};

// Rejects (kInternal) a plan that would make the engine read or write outside an array.
Result<CompiledPlan> compile(Plan plan);

// Thread-safety: all methods. Bounded; the least recently used entry is evicted first. Keys hold no
// pointers to user memory.
class PlanCache {
 public:
  explicit PlanCache(std::size_t capacity = 64) : capacity_(capacity) {}
  Result<std::shared_ptr<const CompiledPlan>> get(const Algorithm& algorithm, const Shape& shape);
  std::size_t size() const;

 private:
  struct Entry {
    const Algorithm* algorithm;
    Shape shape;
    uint64_t last_used;
    std::shared_ptr<const CompiledPlan> plan;
  };
  const std::size_t capacity_;
  mutable std::mutex mutex_;    // guards the members below
  std::vector<Entry> entries_;  // few in practice: a linear search is faster than a hash table
  uint64_t clock_ = 0;
};

}  // namespace pc
