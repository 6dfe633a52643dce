// One collective in execution. A run has the same interface for all executors: one side for the
// queue of its group, and one, Work, for the caller.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "engine/bind.h"
#include "engine/executor.h"
#include "engine/request.h"
#include "transport/reactor.h"

namespace pc {

class RunQueue;
class OpenGroup;
class OpenGroups;

// Thread-safety: only the holder of the group's progress lock calls the methods, except where a
// method says otherwise. The methods of Work require that the run is in the queue; Work states
// which threads may call them. Runs are reused.
class Run : public Work {
 public:
  ~Run() override = default;
  Run() = default;
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  virtual void start(Scratch& scratch) = 0;  // begins, and makes as much progress as possible
  virtual void advance() = 0;                // makes as much progress as possible
  // Ends the run with `result` and withdraws its operations in flight. Afterwards the run no longer
  // uses the caller's memory.
  virtual void end(Status result) = 0;
  // Waits until advance() has something to do, or the context ends.
  virtual WaitEnd wait_to_advance(Reactor& reactor, const WaitContext& context) {
    return reactor.wait(queue_, context);
  }

  // ---- Work (run_as_work.cc)
  //
  // Returns a run of queue `runs` as the Work that the caller holds. Until the Work is released it
  // shares ownership of `groups` and `group`, to which the queue belongs.
  static WorkPtr as_work(std::unique_ptr<Run> run, RunQueue& runs, const std::shared_ptr<OpenGroups>& groups,
                         const std::shared_ptr<OpenGroup>& group);
  void release() noexcept final;
  bool done() const final { return ended(); }
  WaitEnd drive(const WaitContext& context) final;
  void progress() final;
  void notify(CompletionSink* notifier, uint64_t token) final;
  Status wait(const WaitContext& context) final;
  void cancel() final;

  uint64_t sequence() const { return launch_.sequence; }
  // Thread-safety: any thread may call both. After request_end() the next advance() ends the run
  // with `why`. After wake() the thread that drives the run checks again what it waits for.
  void request_end(Status why) { queue_.complete(Completion{kEndToken, std::move(why), {}, 0}); }
  void wake() { queue_.complete(Completion{kWakeToken, Status(), {}, 0}); }

  // set_notifier() sets the notifier of this run; null removes it. The notifier is completed when
  // the run ends and, while no thread drives the run, whenever one of its operations completes. The
  // group's queue calls these methods with its lock held.
  void set_notifier(CompletionSink* notifier, uint64_t token);
  void notify_completions();
  void stop_notifying();
  void notify_now() const;  // any thread

  bool started() const { return started_; }
  bool ended() const { return ended_.load(std::memory_order_acquire); }  // any thread
  const Status& result() const { return result_; }                       // valid once the run has ended

 protected:
  static constexpr uint64_t kEndToken = ~uint64_t{0}, kWakeToken = kEndToken - 2;
  void renew(const Request& request, const Launch& launch);  // not while it runs
  void set_ended(Status result);
  // progress_released(): no thread drives the run from now on. progress_held(): a thread drives it
  // again.
  virtual void progress_released() {}
  virtual void progress_held() {}

  Request request_;
  Launch launch_;
  CompletionQueue queue_;
  bool started_ = false;

 private:
  Status result_;
  std::atomic<bool> ended_{false};
  std::atomic<CompletionSink*> notifier_{nullptr};
  std::atomic<uint64_t> notifier_token_{0};
  RunQueue* runs_ = nullptr;  // this and the members below are set while a caller holds the run
  std::shared_ptr<OpenGroups> groups_;
  std::shared_ptr<OpenGroup> group_;
};

}  // namespace pc
