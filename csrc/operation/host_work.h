// A call of arrays on the host that goes on without its caller: the progress thread drives it, or whoever waits for it, and it ends
// either way.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "operation/async_work.h"
#include "operation/operation.h"

namespace pc {

// Thread-safety: all methods.
class HostWork final : public AsyncWork {
 public:
  struct Start {
    std::unique_ptr<Operation> work;
    Deadline deadline = Deadline(TimePoint::max());  // of the call
    // Once, when it has ended, in the thread that ended it; shall not wait. May be empty.
    std::function<void(const Status& outcome)> on_end;
  };
  // Whose thread makes progress on calls for which no thread waits. Outlives them while they run.
  class Owner {
   public:
    virtual CompletionSink* notifier() = 0;  // completed with a call's number: go_on()
    virtual void forget(uint64_t id) = 0;    // that call has ended
    virtual bool stopping() const = 0;       // true: calls end now

   protected:
    ~Owner() = default;
  };
  explicit HostWork(Status outcome);  // one that has ended
  HostWork(Owner& owner, uint64_t id, Start start);

  bool done() const override;
  std::optional<Status> outcome() const override;
  std::optional<Status> wait(const WaitContext& context, Part part = Part::kDrives) override;
  void detach() override;
  const std::string& operation() const override { return operation_; }
  uint64_t sequence() const override { return sequence_; }
  TimePoint began() const override { return began_; }
  TimePoint ended_at() const override;

 private:
  friend class Progress;
  // For the thread of `owner_`. Nothing, if somebody waits for this: he does the same.
  void go_on();              // its notifier was completed
  void look(TimePoint now);  // every now and then
  void end_now();            // the group has ended
  TimePoint due() const { return own_.deadline.when(); }

  bool claim();
  void let_go();
  void end();                                       // claimed; a call that went wrong ends at a later look()
  void finish(const std::function<bool()>* probe);  // claimed
  void report_if_unobserved(const Status& outcome) const;
  WaitContext with_own(const WaitContext& context) const;

  Owner* const owner_ = nullptr;
  const uint64_t id_ = 0;
  const std::shared_ptr<GroupState> group_;  // null: it has ended from the beginning
  const std::string operation_;
  const uint64_t sequence_ = 0;
  const TimePoint began_ = now();
  const WaitContext own_ = {Deadline(TimePoint::max())};  // the call's deadline, and the group's word

  mutable std::mutex mutex_;         // guards what follows
  std::condition_variable changed_;  // claimed_ or outcome_
  std::unique_ptr<Operation> work_;  // null once it has ended. Used by whoever has claimed it
  bool claimed_ = false;
  bool detached_ = false;
  std::function<void(const Status&)> on_end_;
  std::optional<Status> outcome_;
  TimePoint ended_at_{};
};

}  // namespace pc
