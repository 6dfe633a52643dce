#include "engine/plan_executor.h"

#include <mutex>
#include <vector>

#include "engine/group_line.h"
#include "engine/plan_cache.h"

namespace pc {

struct PlanExecutor::State {
  State(Transport& transport_, Reactor& reactor_) : transport(transport_), reactor(reactor_) {}
  GroupLine& line(uint32_t group) {
    const std::lock_guard<std::mutex> lock(mutex);
    for (const std::unique_ptr<GroupLine>& known : lines) {
      if (known->group() == group) return *known;
    }
    lines.push_back(std::make_unique<GroupLine>(transport, reactor, group));
    if (!aborted.is_ok()) lines.back()->abort(aborted);
    return *lines.back();
  }

  Transport& transport;
  Reactor& reactor;
  PlanCache plans;
  std::mutex mutex;                               // guards what follows
  std::vector<std::unique_ptr<GroupLine>> lines;  // one per group; few
  Status aborted;
};

namespace {

// What the caller holds. The run itself goes back to its line, to be used again.
class PlanWork final : public Work {
 public:
  PlanWork(std::shared_ptr<void> keep, GroupLine& line, std::unique_ptr<PlanRun> run)
      : keep_(std::move(keep)),
        line_(line),
        run_(std::move(run)) {}
  ~PlanWork() override { line_.release(std::move(run_)); }
  bool done() const override { return run_->ended(); }
  Status wait(const WaitContext& context) override { return line_.wait(*run_, context); }
  void cancel() override { line_.cancel(run_->sequence(), Status(Code::kAborted, "cancelled by its owner")); }
  Rank waits_for() const override { return run_->waits_for(); }
  std::string where() const override { return run_->where(); }

 private:
  std::shared_ptr<void> keep_;  // owns line_
  GroupLine& line_;
  std::unique_ptr<PlanRun> run_;
};

}  // namespace

PlanExecutor::PlanExecutor(Transport& transport, Reactor& reactor)
    : state_(std::make_shared<State>(transport, reactor)) {}
PlanExecutor::~PlanExecutor() { abort(Status(Code::kAborted, "the executor was closed")); }

std::string_view PlanExecutor::name() const { return "plan"; }

bool PlanExecutor::supports(const Request& request, Rank) const {
  if (request.in.device.type != DeviceType::kCpu || request.out.device.type != DeviceType::kCpu) return false;
  switch (request.collective) {
    case Collective::kAllreduce:
    case Collective::kReduce: return can_reduce(request.in.dtype, request.op);
    case Collective::kBroadcast:
    case Collective::kBarrier: return true;
  }
  return false;
}

Result<std::unique_ptr<Work>> PlanExecutor::launch(const Request& request, const Launch& launch) {
  const Shape shape{request.collective, launch.rank, launch.size, request.root, launch.split};
  PC_ASSIGN_OR_RETURN(std::shared_ptr<const CompiledPlan> plan, state_->plans.get(*launch.algorithm, shape));
  GroupLine& line = state_->line(launch.group);
  std::unique_ptr<PlanRun> run = line.new_run();
  run->prepare(request, launch, std::move(plan));
  PlanRun& entering = *run;
  auto work = std::make_unique<PlanWork>(state_, line, std::move(run));
  line.enter(entering);
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
