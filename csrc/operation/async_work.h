// A call that goes on without its caller: the progress thread drives it, or whoever waits for it, and it ends either way.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/clock.h"
#include "operation/operation.h"

namespace pc {

// Thread-safety: all methods. Its memory is the call's until it has ended, also if nobody holds this any more.
class AsyncWork : public std::enable_shared_from_this<AsyncWork> {
 public:
  struct Start {
    std::unique_ptr<Operation> work;
    Deadline deadline = Deadline(TimePoint::max());  // of the call
    // Once, when it has ended, in the thread that ended it; shall not wait. May be empty.
    std::function<void(const Status& outcome)> on_end;
  };
  // Of whoever waits. Who does not keep the runtime alive must look on: its end ends the call.
  enum class Part : uint8_t { kDrives, kLooksOn };
  // Whose thread makes progress on calls for which no thread waits. Outlives them while they run.
  class Owner {
   public:
    virtual CompletionSink* bell() = 0;    // completed with a call's number: go_on()
    virtual void forget(uint64_t id) = 0;  // that call has ended
    virtual bool stopping() const = 0;     // true: calls end now

   protected:
    ~Owner() = default;
  };
  explicit AsyncWork(Status outcome);  // one that has ended
  AsyncWork(Owner& owner, uint64_t id, Start start);
  AsyncWork(const AsyncWork&) = delete;
  AsyncWork& operator=(const AsyncWork&) = delete;
  ~AsyncWork() = default;

  // wait() would not wait for other ranks. If this is so, it is so for all earlier calls of the group, messages apart.
  bool done() const;
  // How the call ended. Null: `context` ended first, or its probe said so, and the call goes on. A call from inside a probe
  // of its group is refused with kInvalidArgument, which is not how it ended.
  std::optional<Status> wait(const WaitContext& context, Part part = Part::kDrives);
  // How it ended, if it has.
  std::optional<Status> outcome() const;
  // Nobody is going to ask how it ends. If it fails, the next call on the group raises that, or else it is logged.
  void leave_alone();

  const std::string& operation() const { return operation_; }
  uint64_t sequence() const { return sequence_; }  // 0: a message, or a world of one
  TimePoint began() const { return began_; }
  TimePoint ended_at() const;  // now, if it has not ended

 private:
  friend class Progress;
  // For the thread of `owner_`. Nothing, if somebody waits for this: he does the same.
  void go_on();              // its bell has rung
  void look(TimePoint now);  // every now and then
  void end_now();            // the group has ended
  TimePoint due() const { return own_.deadline.when(); }

  bool claim();
  void let_go();
  void end();                                       // claimed; a call that went wrong ends at a later look()
  void finish(const std::function<bool()>* probe);  // claimed
  void tell_if_unheard(const Status& outcome) const;
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
  bool left_alone_ = false;
  std::function<void(const Status&)> on_end_;
  std::optional<Status> outcome_;
  TimePoint ended_at_{};
};

}  // namespace pc
