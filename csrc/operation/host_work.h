// An asynchronous call with arrays on the host. A thread that waits for the call drives it;
// otherwise the progress thread does.
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
    Deadline deadline = Deadline(TimePoint::max());  // deadline of the call
    // Called once, when the call has ended, in the thread that ended it; must not wait. May be
    // empty.
    std::function<void(const Status& outcome)> on_end;
  };
  // Owns the progress thread, which drives calls for which no thread waits. Outlives all unfinished
  // calls.
  class Owner {
   public:
    // completed with the id of a call that can continue, for which the owner then calls go_on()
    virtual CompletionSink* notifier() = 0;
    virtual void forget(uint64_t id) = 0;  // the call with this id has ended
    virtual bool stopping() const = 0;     // returns true if calls must end now

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
  // Called by the progress thread. They do nothing while another thread drives the call.
  void go_on();              // called after a completion on the notifier
  void look(TimePoint now);  // called periodically
  void end_now();            // called when the progress thread stops; the group has then ended
  TimePoint due() const { return own_.deadline.when(); }

  bool claim();
  void let_go();
  // Ends the call, which this thread has claimed. If other ranks' reports on a failure are
  // outstanding, a later look() ends the call.
  void end();
  void finish(const std::function<bool()>* probe);  // ends the call, which this thread has claimed
  void report_if_unobserved(const Status& outcome) const;
  WaitContext with_own(const WaitContext& context) const;

  Owner* const owner_ = nullptr;
  const uint64_t id_ = 0;
  const std::shared_ptr<GroupState> group_;  // null: the call had ended when this object was created
  const std::string operation_;
  const uint64_t sequence_ = 0;
  const TimePoint began_ = now();
  const WaitContext own_ = {Deadline(TimePoint::max())};  // the call's deadline, and the group's abort word

  mutable std::mutex mutex_;         // guards the members below
  std::condition_variable changed_;  // signals changes of claimed_ and outcome_
  // null once the call has ended; used only by the thread that has claimed the call, except in
  // done()
  std::unique_ptr<Operation> work_;
  bool claimed_ = false;
  bool detached_ = false;
  std::function<void(const Status&)> on_end_;
  std::optional<Status> outcome_;
  TimePoint ended_at_{};
};

}  // namespace pc
