// What the caller of a launched collective holds: the run itself, which goes back to its line, to be used again.
#include <utility>

#include "engine/run.h"
#include "engine/run_queue.h"

namespace pc {

WorkPtr Run::as_work(std::unique_ptr<Run> run, RunQueue& line, const std::shared_ptr<OpenGroups>& groups,
                     const std::shared_ptr<OpenGroup>& group) {
  run->line_ = &line;
  run->groups_ = groups;
  run->group_ = group;
  return WorkPtr(run.release());
}

void Run::release() noexcept {
  const auto groups = std::move(groups_);  // these go last: the line and this run may go with them
  const auto group = std::move(group_);
  line_->release(std::unique_ptr<Run>(this));
}

WaitEnd Run::drive(const WaitContext& context) { return line_->drive(*this, context); }
void Run::progress() { line_->progress(); }
void Run::notify(CompletionSink* notifier, uint64_t token) { line_->notify(*this, notifier, token); }

Status Run::wait(const WaitContext& context) {
  const WaitEnd how = line_->drive(*this, context);
  if (how != WaitEnd::kReady) line_->end(*this, ended_early(how, where(), waits_for()));
  return result();
}

void Run::cancel() { line_->cancel(sequence(), Status(Code::kAborted, "cancelled by its owner")); }

}  // namespace pc
