// What the caller of a launched collective holds. The run itself goes back to its line, to be used again.
#pragma once

#include <memory>

#include "engine/executor.h"
#include "engine/group_line.h"

namespace pc {

class LineWork final : public Work {
 public:
  // `line` belongs to `group`, and that uses `executor`.
  LineWork(std::shared_ptr<void> executor, std::shared_ptr<void> group, GroupLine& line)
      : executor_(std::move(executor)),
        group_(std::move(group)),
        line_(line) {}
  LineWork(const LineWork&) = delete;
  LineWork& operator=(const LineWork&) = delete;
  ~LineWork() override {
    if (run_ != nullptr) line_.release(std::move(run_));
  }
  void take(std::unique_ptr<Run> run) { run_ = std::move(run); }  // once; in line
  bool done() const override { return run_->ended(); }
  WaitEnd drive(const WaitContext& context) override { return line_.drive(*run_, context); }
  void progress() override { line_.progress(); }
  void ring(CompletionSink* bell, uint64_t token) override { line_.ring(*run_, bell, token); }
  Status wait(const WaitContext& context) override {
    const WaitEnd how = line_.drive(*run_, context);
    if (how != WaitEnd::kReady) line_.end(*run_, ended_early(how, run_->where(), run_->waits_for()));
    return run_->result();
  }
  void cancel() override { line_.cancel(run_->sequence(), Status(Code::kAborted, "cancelled by its owner")); }
  Rank waits_for() const override { return run_->waits_for(); }
  std::string where() const override { return run_->where(); }

 private:
  std::shared_ptr<void> executor_, group_;
  GroupLine& line_;
  std::unique_ptr<Run> run_;
};

}  // namespace pc
