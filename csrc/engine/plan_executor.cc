#include "engine/plan_executor.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "engine/group_line.h"
#include "engine/plan_cache.h"

namespace pc {

struct PlanExecutor::State {
  State(Transport& transport_, Reactor& reactor_) : transport(transport_), reactor(reactor_) {}
  GroupLine& line(uint32_t group) {
    GroupLine* const recent = used_last.load(std::memory_order_acquire);
    if (recent != nullptr && recent->group() == group) return *recent;
    const std::lock_guard<std::mutex> lock(mutex);
    auto known = std::find_if(lines.begin(), lines.end(), [&](const auto& l) { return l->group() == group; });
    if (known == lines.end()) {
      known = lines.insert(known, std::make_unique<GroupLine>(transport, reactor, group));
      if (!aborted.is_ok()) (*known)->abort(aborted);
    }
    used_last.store(known->get(), std::memory_order_release);
    return **known;
  }

  Transport& transport;
  Reactor& reactor;
  PlanCache plans;
  std::atomic<GroupLine*> used_last{nullptr};     // of `lines`, most often the right one
  std::mutex mutex;                               // guards what follows
  std::vector<std::unique_ptr<GroupLine>> lines;  // one per group; few, and they stay
  Status aborted;
};

namespace {

// What the caller holds. The run itself goes back to its line, to be used again.
class PlanWork final : public Work {
 public:
  PlanWork(std::shared_ptr<void> keep, GroupLine& line) : keep_(std::move(keep)), line_(line) {}
  ~PlanWork() override {
    if (run_ != nullptr) line_.release(std::move(run_));
  }
  Status enter(const Request& request, const Launch& launch, PlanCache& plans) {
    return line_.enter(request, launch, plans, run_);
  }
  bool done() const override { return run_->ended(); }
  WaitEnd drive(const WaitContext& context) override { return line_.drive(*run_, context); }
  void progress() override { line_.progress(); }
  void ring(CompletionSink* bell, uint64_t token) override { line_.ring(*run_, bell, token); }
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
  return !reduces(request.collective) || can_reduce(request.in.dtype, request.op);
}

Result<std::unique_ptr<Work>> PlanExecutor::launch(const Request& request, const Launch& launch) {
  GroupLine& line = state_->line(launch.group);
  auto work = std::make_unique<PlanWork>(state_, line);  // first: once it runs, somebody must own it
  PC_TRY(work->enter(request, launch, state_->plans));
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
