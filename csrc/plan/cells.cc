#include "plan/cells.h"

#include <algorithm>
#include <string>

#include "plan/analysis.h"

namespace pc {

Cells::Cells(const Plan& any) : chunks_(any.chunks), ranks_(static_cast<std::size_t>(any.shape.size)) {
  Shape shape = any.shape;
  std::size_t all = 0;
  for (shape.rank = 0; shape.rank < shape.size; ++shape.rank)
    all += held(shape, chunks_, Area::kOutput).count;
  outputs_ = std::make_unique_for_overwrite<uint64_t[]>(all);
  uint64_t* values = outputs_.get();
  for (shape.rank = 0; shape.rank < shape.size; ++shape.rank) {
    Memory& memory = ranks_[static_cast<std::size_t>(shape.rank)];
    memory.base_ = base(shape.rank);
    memory.output_ = held(shape, chunks_, Area::kOutput);
    memory.values_ = values;
    values += memory.output_.count;
  }
  if (!reduces(shape.collective)) return;
  totals_.resize(chunks_);
  sums_.resize(chunks_);
  for (Rank rank = 0; rank < shape.size; ++rank) add(totals_, rank);
}

Status Cells::fits(const Plan& any) {
  const uint64_t held_chunks = held(any.shape, any.chunks, Area::kOutput).count + any.scratch_chunks;
  const uint64_t nbytes = held_chunks * static_cast<uint64_t>(any.shape.size) * sizeof(uint64_t);
  if (nbytes <= kMostNbytes) return Status::ok();
  return Status(Code::kInvalidArgument, "the data of " + std::to_string(any.shape.size) + " ranks needs " +
                                            std::to_string(nbytes >> 30) + " GiB, more than " +
                                            std::to_string(kMostNbytes >> 30) +
                                            ": take fewer ranks or a smaller split");
}

void Cells::add(std::vector<uint64_t>& sums, Rank rank) const {
  const uint64_t from = base(rank);
  for (uint32_t chunk = 0; chunk < chunks_; ++chunk) sums[chunk] += contribution(from, chunk);
}

void Cells::subtract(std::vector<uint64_t>& sums, Rank rank) const {
  const uint64_t from = base(rank);
  for (uint32_t chunk = 0; chunk < chunks_; ++chunk) sums[chunk] -= contribution(from, chunk);
}

// Makes sums_ the sums over the ranks in `to`. This is cheap if ranks are checked in order, because
// the windows of consecutive ranks differ little.
void Cells::move_window(Contributors to) {
  while (window_.to < to.to) add(sums_, window_.to++);
  while (window_.to > to.to) subtract(sums_, --window_.to);
  while (window_.from > to.from) add(sums_, --window_.from);
  while (window_.from < to.from) subtract(sums_, window_.from++);
}

Cells::Memory& Cells::of(const Plan& plan) {
  Memory& memory = ranks_[static_cast<std::size_t>(plan.shape.rank)];
  if (memory.filled_) return memory;
  memory.filled_ = true;
  const Chunks both = shared_chunks(plan.shape, plan.chunks);
  for (uint32_t i = 0; i < memory.output_.count; ++i) {
    const uint32_t name = memory.output_.name(i);
    const bool copied = name >= both.first && name - both.first < both.count;
    memory.values_[i] = copied ? contribution(memory.base_, name) : never_written(memory.base_, i);
  }
  for (uint32_t i = 0; i < plan.scratch_chunks; ++i)
    memory.scratch_.push_back(never_written(memory.base_, std::size_t{memory.output_.count} + i));
  return memory;
}

Status Cells::check_result(const Plan& plan) {
  const Memory& memory = of(plan);
  // A fast comparison for an allreduce, in which all ranks hold the same result, totals_.
  if (plan.shape.collective == Collective::kAllreduce &&
      std::equal(totals_.begin(), totals_.end(), memory.values_))
    return Status::ok();
  const bool is_of_scan = is_scan(plan.shape.collective);
  if (is_of_scan) move_window(contributors(plan.shape, plan.chunks, 0));
  for (uint32_t i = 0; i < memory.output_.count; ++i) {
    const uint32_t name = memory.output_.name(i);
    const Contributors ranks = contributors(plan.shape, plan.chunks, name);
    const uint64_t wanted = ranks.to - ranks.from == 1 ? contribution(ranks.from, name)
                            : is_of_scan               ? sums_[name]
                                                       : totals_[name];
    const uint64_t got = memory.values_[i];
    if (got == wanted) continue;
    return plan_error(plan, "ends with a wrong chunk " + std::to_string(name) + ": it holds " +
                                std::to_string(count(got)) + " contributions instead of " +
                                std::to_string(count(wanted)) +
                                (count(got) == count(wanted) ? ", but not the right ones" : ""));
  }
  return Status::ok();
}

}  // namespace pc
