// The Work of a launched collective is the run itself. When the Work is released, the run returns
// to its queue for reuse.
#include <utility>

#include "engine/run.h"
#include "engine/run_queue.h"

namespace pc {

WorkPtr Run::as_work(std::unique_ptr<Run> run, RunQueue& runs, const std::shared_ptr<OpenGroups>& groups,
                     const std::shared_ptr<OpenGroup>& group) {
  run->runs_ = &runs;
  run->groups_ = groups;
  run->group_ = group;
  return WorkPtr(run.release());
}

void Run::release() noexcept {
  // destroyed last: the queue and this run may be destroyed with them
  const auto groups = std::move(groups_);
  const auto group = std::move(group_);
  runs_->release(std::unique_ptr<Run>(this));
}

WaitEnd Run::drive(const WaitContext& context) { return runs_->drive(*this, context); }
void Run::progress() { runs_->progress(); }
void Run::notify(CompletionSink* notifier, uint64_t token) { runs_->notify(*this, notifier, token); }

Status Run::wait(const WaitContext& context) {
  const WaitEnd how = runs_->drive(*this, context);
  if (how != WaitEnd::kReady) runs_->end(*this, ended_early(how, where(), waits_for()));
  return result();
}

void Run::cancel() { runs_->cancel(sequence(), Status(Code::kAborted, "cancelled by its owner")); }

}  // namespace pc
