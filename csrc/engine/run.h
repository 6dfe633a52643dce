// One collective being run, whatever runs it: what the queue of a group needs to know of it, and the work
// that a caller holds.
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

// Thread-safety: one thread at a time (the holder of the group's progress lock), except where a method says
// otherwise. Used again and again. The methods of Work are for a run that is in the queue, and may be called
// by any thread that Work allows.
class Run : public Work {
 public:
  ~Run() override = default;
  Run() = default;
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  virtual void start(Scratch& scratch) = 0;  // begins, and goes on as far as possible
  virtual void advance() = 0;                // goes on as far as possible
  // Withdraws what is in flight: afterwards the user's memory is free.
  virtual void end(Status result) = 0;
  // Until advance() has something to do, or the context ends.
  virtual WaitEnd wait_to_advance(Reactor& reactor, const WaitContext& context) {
    return reactor.wait(queue_, context);
  }

  // ---- Work (run_as_work.cc)
  // What the caller of a run in that queue holds. Until it is released it keeps `groups` and `group`, which
  // the queue belongs to.
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
  void request_end(Status why) {  // any thread: the next advance() ends the run, and its driver wakes for it
    queue_.complete(Completion{kEndToken, std::move(why), {}, 0});
  }
  void wake() {
    queue_.complete(Completion{kWakeToken, Status(), {}, 0});
  }  // any thread: its driver looks around

  // Whoever looks after this run: hears of its end, and of completions while nobody drives it. Null: nobody.
  // The group's queue calls these, with its lock held.
  void set_notifier(CompletionSink* notifier, uint64_t token);
  void notify_completions();
  void stop_notifying();
  void notify_now() const;  // any thread

  bool started() const { return started_; }
  bool ended() const { return ended_.load(std::memory_order_acquire); }  // any thread
  const Status& result() const { return result_; }                       // once ended

 protected:
  static constexpr uint64_t kEndToken = ~uint64_t{0}, kWakeToken = kEndToken - 2;
  void renew(const Request& request, const Launch& launch);  // not while it runs
  void set_ended(Status result);
  // Nobody drives it from now on, or somebody does again.
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
  RunQueue* runs_ = nullptr;  // the rest: of a run that a caller holds
  std::shared_ptr<OpenGroups> groups_;
  std::shared_ptr<OpenGroup> group_;
};

}  // namespace pc
