#include "engine/plan/plan_cache.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "plan/contracts.h"

namespace pc {
namespace {

bool sends(const Step& s) { return s.kind == StepKind::kSend; }
bool receives(const Step& s) { return s.kind == StepKind::kRecv || s.kind == StepKind::kRecvReduce; }

bool inside(const Plan& plan, Area area, Chunks range) {
  if (range.count == 0) return true;
  if (area != Area::kScratch) return held(plan.shape, plan.chunks, area).has(range);
  if (range.count > 1 && !packs(plan.shape)) return false;
  return uint64_t{range.first} + range.count <= plan.scratch_chunks;
}

bool sound(const Plan& plan, std::size_t index) {
  const Step& s = plan.steps[index];
  const bool local = !sends(s) && !receives(s);
  if (s.lane >= plan.lanes || s.after > plan.steps.size() || s.after == index + 1) return false;
  if (!local && (s.peer < 0 || s.peer >= plan.shape.size || s.peer == plan.shape.rank)) return false;
  const bool reads = sends(s) || local;
  const bool writes = receives(s) || local;
  if (reads && (!inside(plan, s.src_area, s.src) || s.src.count != moved_chunks(s).count)) return false;
  if (writes && (!inside(plan, s.dst_area, s.dst) || s.dst.count != moved_chunks(s).count)) return false;
  if (writes && s.dst_area == Area::kInput) return false;
  const Chunks moved = moved_chunks(s);
  if (uint64_t{moved.first} + moved.count > plan.chunks) return false;
  // A local step from one array to another must read and write the same chunk. Otherwise it could
  // overrun the last chunk, which may be shorter than the others.
  return !local || (s.src_area == Area::kScratch) != (s.dst_area == Area::kScratch) || s.src == s.dst;
}

}  // namespace

Result<CompiledPlan> compile(Plan plan) {
  CompiledPlan compiled;
  const std::size_t n = plan.steps.size();
  for (std::size_t i = 0; i < n; ++i) {
    if (sound(plan, i)) continue;
    return Status(Code::kInternal, "plan " + std::string(plan.algorithm) + " for " +
                                       std::to_string(plan.shape.size) + " ranks has a malformed step " +
                                       std::to_string(i + 1));
  }
  compiled.message_index.resize(n);
  compiled.lane_begin.push_back(0);
  std::map<std::tuple<Rank, uint8_t, bool>, uint32_t> counters;
  for (uint32_t lane = 0; lane < plan.lanes; ++lane) {
    for (uint32_t i = 0; i < n; ++i) {
      const Step& s = plan.steps[i];
      if (s.lane != lane) continue;
      compiled.lane_steps.push_back(i);
      if (sends(s) || receives(s)) compiled.message_index[i] = counters[{s.peer, s.lane, sends(s)}]++;
    }
    compiled.lane_begin.push_back(static_cast<uint32_t>(compiled.lane_steps.size()));
  }
  compiled.shared = shared_chunks(plan.shape, plan.chunks);
  compiled.plan = std::move(plan);
  return compiled;
}

Result<std::shared_ptr<const CompiledPlan>> PlanCache::get(const Algorithm& algorithm, const Shape& shape) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (Entry& entry : entries_) {
      if (entry.algorithm != &algorithm || !(entry.shape == shape)) continue;
      entry.last_used = ++clock_;
      return entry.plan;
    }
  }
  if (!algorithm.supports(shape)) {
    return Status(Code::kUnsupported, std::string(algorithm.name) + " cannot run " +
                                          std::string(name_of(shape.collective)) + " on " +
                                          std::to_string(shape.size) + " ranks; choose another algorithm");
  }
  PC_ASSIGN_OR_RETURN(CompiledPlan compiled, compile(algorithm.build(shape)));
  auto plan = std::make_shared<const CompiledPlan>(std::move(compiled));
  const std::lock_guard<std::mutex> lock(mutex_);
  if (entries_.size() >= capacity_) {
    const auto oldest =
        std::min_element(entries_.begin(), entries_.end(),
                         [](const Entry& a, const Entry& b) { return a.last_used < b.last_used; });
    entries_.erase(oldest);
  }
  entries_.push_back(Entry{&algorithm, shape, ++clock_, plan});
  return plan;
}

std::size_t PlanCache::size() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return entries_.size();
}

}  // namespace pc
