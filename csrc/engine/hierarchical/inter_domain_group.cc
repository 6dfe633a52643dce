#include "engine/hierarchical/inter_domain_group.h"

#include <algorithm>
#include <utility>

namespace pc::shm {
namespace {

// The number of message indices that each round has. No plan has as many messages between two
// ranks.
constexpr uint32_t kMessagesOfRound = 1U << 12;

}  // namespace

void InterGroup::prepare(const Part& part, const Launch& launch, std::span<const Rank> ranks,
                         Rank own_domain) {
  part_ = part;
  launch_ = launch;
  ranks_ = ranks;
  worlds_.clear();
  for (const Rank rank : ranks_) worlds_.push_back(launch.world_ranks[rank]);
  launch_.rank = own_domain;
  launch_.size = static_cast<Rank>(ranks_.size());
  launch_.world_ranks = worlds_.data();
  launch_.names = ranks_.data();
  launch_.contributions = part.contributions;
  begun_ = taken_ = 0;
  prepared_ = true;
  failure_ = Status();
}

Request InterGroup::request_for(std::span<std::byte> memory) const {
  Request request;
  request.collective = part_.collective;
  request.op = part_.op;
  request.root = part_.root;
  request.fixed_order = part_.fixed_order;
  // The collective runs in place even if each rank has a part: this rank's part is one of those in
  // `memory`.
  Buffer own{nullptr, memory.size() / size_of(part_.dtype) / ranks_.size(), part_.dtype};
  own.data = memory.data() + own_part() * own.nbytes();
  const Buffer buffer{memory.data(), memory.size() / size_of(part_.dtype), part_.dtype};
  const bool at_root = launch_.rank == part_.root;
  if (part_.collective != Collective::kBroadcast || at_root) request.in = buffer;
  if (part_.collective != Collective::kReduce || at_root) request.out = buffer;
  if (part_.collective == Collective::kAllgather) request.in = own;
  if (part_.collective == Collective::kReduceScatter) request.out = own;
  return request;
}

Result<std::unique_ptr<PlanRun>> InterGroup::run_for(const Request& request, const ChosenPlan& plan) {
  const Shape shape{request.collective, launch_.rank, launch_.size, request.root, plan.split, true};
  const auto fits = std::find_if(idle_.begin(), idle_.end(),
                                 [&](const auto& run) { return run->runs(*plan.algorithm, shape); });
  if (fits != idle_.end()) {
    std::unique_ptr<PlanRun> run = std::move(*fits);
    idle_.erase(fits);
    return run;
  }
  PC_ASSIGN_OR_RETURN(std::shared_ptr<const CompiledPlan> compiled, plans_.get(*plan.algorithm, shape));
  return std::make_unique<PlanRun>(transport_, *plan.algorithm, std::move(compiled));
}

void InterGroup::exchange(uint32_t round, std::span<std::byte> memory) {
  if (!failure_.is_ok()) return;
  const Request request = request_for(memory);
  const ChosenPlan plan = choose_(part_.collective, memory.size(), launch_.size, part_.fixed_order);
  Result<std::unique_ptr<PlanRun>> run = run_for(request, plan);
  if (!run.is_ok()) {
    failure_ = run.status();  // returned by take(), which is called next
    return;
  }
  Slot& here = slot(round);
  here.run = std::move(run).value();
  ++begun_;
  launch_.algorithm = plan.algorithm;
  launch_.split = plan.split;
  launch_.first_message = round * kMessagesOfRound;
  here.run->prepare(request, launch_);
  here.run->set_notifier(notifier_, token_);
  here.run->start(here.scratch);
  if (!here.run->ended()) here.run->notify_completions();
}

Result<bool> InterGroup::take(uint32_t round) {
  PC_TRY(failure_);
  for (uint32_t r = taken_; r != begun_; ++r) {
    PlanRun& run = *slot(r).run;
    if (!run.ended()) run.advance();
    if (run.ended() && !run.result().is_ok()) return run.result();
  }
  if (round == begun_ || !slot(round).run->ended()) return false;
  keep(std::move(slot(round).run));
  ++taken_;
  return true;
}

// Discards what peers send for the call even if no round has begun here, because peers may be
// ahead.
void InterGroup::end(const Status& why) {
  if (!prepared_) return;
  prepared_ = false;
  for (; taken_ != begun_; ++taken_) {
    slot(taken_).run->end(why);
    keep(std::move(slot(taken_).run));
  }
  transport_.discard(launch_.group, launch_.sequence);
}

void InterGroup::keep(std::unique_ptr<PlanRun> run) {
  if (idle_.size() == kMostIdle) idle_.erase(idle_.begin());
  idle_.push_back(std::move(run));
}

Rank InterGroup::waits_for() const { return is_active() ? slots_[taken_ % kMost].run->waits_for() : -1; }

}  // namespace pc::shm
