#include "engine/plan_executor.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "engine/line_work.h"
#include "engine/plan_run_for.h"

namespace pc {

struct PlanExecutor::State {
  State(Transport& transport_, Reactor& reactor_) : transport(transport_), reactor(reactor_) {}
  GroupLine& line(uint32_t group) {
    GroupLine* const recent = used_last.load(std::memory_order_acquire);
    if (recent != nullptr && recent->group() == group) return *recent;
    const std::lock_guard<std::mutex> lock(mutex);
    auto known = std::find_if(lines.begin(), lines.end(), [&](const auto& l) { return l->group() == group; });
    if (known == lines.end()) {
      known = lines.insert(known, make_line(group));
      if (!aborted.is_ok()) (*known)->abort(aborted);
    }
    used_last.store(known->get(), std::memory_order_release);
    return **known;
  }

  std::unique_ptr<GroupLine> make_line(uint32_t group) {
    return std::make_unique<GroupLine>(
        reactor, group, [this, group](uint64_t sequence) { transport.discard(group, sequence); });
  }

  Transport& transport;
  Reactor& reactor;
  PlanCache plans;
  std::atomic<GroupLine*> used_last{nullptr};     // of `lines`, most often the right one
  std::mutex mutex;                               // guards what follows
  std::vector<std::unique_ptr<GroupLine>> lines;  // one per group; few, and they stay
  Status aborted;
};

PlanExecutor::PlanExecutor(Transport& transport, Reactor& reactor)
    : state_(std::make_shared<State>(transport, reactor)) {}
PlanExecutor::~PlanExecutor() { abort(Status(Code::kAborted, "the executor was closed")); }

std::string_view PlanExecutor::name() const { return "plan"; }

bool PlanExecutor::supports(const Request& request, Rank) const {
  if (request.in.device.type != DeviceType::kCpu || request.out.device.type != DeviceType::kCpu) return false;
  return !reduces(request.collective) || can_reduce(request.in.dtype, request.op);
}

Result<std::unique_ptr<Work>> PlanExecutor::launch(const Request& request, const Launch& launch) {
  GroupLine& line = state_->line(launch.group);
  auto work = std::make_unique<LineWork>(state_, line);  // first: once it runs, somebody must own it
  PC_ASSIGN_OR_RETURN(std::unique_ptr<PlanRun> run,
                      plan_run_for(request, launch, state_->transport, line, state_->plans));
  run->prepare(request, launch);
  line.enter(*run);
  work->take(std::move(run));
  return std::unique_ptr<Work>(std::move(work));
}

void PlanExecutor::cancel(uint32_t group, uint64_t sequence, const Status& why) {
  state_->line(group).cancel(sequence, why);
}

void PlanExecutor::abort(uint32_t group, const Status& why) { state_->line(group).abort(why); }

void PlanExecutor::abort(const Status& why) noexcept {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  if (state_->aborted.is_ok()) state_->aborted = why;
  for (const std::unique_ptr<GroupLine>& line : state_->lines) line->abort(why);
}

}  // namespace pc
