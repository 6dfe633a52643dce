// An asynchronous call with arrays on the host. The progress thread or a thread that waits for the
// call drives it, and the call ends either way.
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
    // Called once, when the call has ended, in the thread that ended it; must not wait. May be
    // empty.
    std::function<void(const Status& outcome)> on_end;
  };
  // The owner of the thread that makes progress on calls for which no thread waits. Outlives the
  // calls while they run.
  class Owner {
   public:
    virtual CompletionSink* notifier() = 0;  // completed with a call's number, which leads to go_on()
    virtual void forget(uint64_t id) = 0;    // that call has ended
    virtual bool stopping() const = 0;       // returns true if calls must end now

   protected:
    ~Owner() = default;
  };
  explicit HostWork(Status outcome);  // a call that has ended already
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
  // These are for the thread of `owner_`. They do nothing while a thread waits for this call, which
  // does the same.
  void go_on();              // the notifier was completed
  void look(TimePoint now);  // called periodically
  void end_now();            // the group has ended
  TimePoint due() const { return own_.deadline.when(); }

  bool claim();
  void let_go();
  void end();                                       // while claimed; a failed call ends at a later look()
  void finish(const std::function<bool()>* probe);  // while claimed
  void report_if_unobserved(const Status& outcome) const;
  WaitContext with_own(const WaitContext& context) const;

  Owner* const owner_ = nullptr;
  const uint64_t id_ = 0;
  const std::shared_ptr<GroupState> group_;  // null: the call had ended from the beginning
  const std::string operation_;
  const uint64_t sequence_ = 0;
  const TimePoint began_ = now();
  const WaitContext own_ = {Deadline(TimePoint::max())};  // the call's deadline, and the group's abort word

  mutable std::mutex mutex_;         // guards the members below
  std::condition_variable changed_;  // signals changes of claimed_ and outcome_
  std::unique_ptr<Operation> work_;  // null once it has ended. Only the thread that has claimed it uses it
  bool claimed_ = false;
  bool detached_ = false;
  std::function<void(const Status&)> on_end_;
  std::optional<Status> outcome_;
  TimePoint ended_at_{};
};

}  // namespace pc
