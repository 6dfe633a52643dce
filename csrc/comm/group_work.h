// A collective of a group while it runs, for whoever waits for it: at once, later, or never.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "comm/group_calls.h"
#include "comm/reentry.h"
#include "comm/wait_watch.h"

namespace pc {

// What the Work of a group shares with it, and may outlive it with.
struct GroupState {
  GroupCalls calls;
  Reentry reentry = {};
};

// A call that has its number.
struct NumberedCall {
  GroupCalls::Call call;       // sequence 0: there is none
  std::unique_ptr<Work> work;  // null: it could not be launched
  Status refused;              // then: why

  bool exists() const { return call.sequence != 0; }
  bool done() const { return work == nullptr || work->done(); }
  // Waits for the end, and puts it into the words of the group. `operation()` is the call's text.
  template <class Operation>
  Status finish(GroupState& group, WaitContext context, const Operation& operation) const {
    Status ended = refused;
    if (work != nullptr) {
      CallWatch watch(group.calls, call, *work);
      context.watch = &watch;
      ended = group.reentry.wait(*work, context, operation);
    }
    if (!ended.is_ok()) return group.calls.conclude(ended, call, operation(), context.interrupted);
    group.calls.done(call);
    return ended;
  }
  // Nobody wants to know how it ends. If it has not, it ends with `why`, for the others too.
  void drop(GroupState& group, const Status& why) const;
};

// What one request makes: the call and, with PYCOLLECTIVE_CHECK=strict, its confirmation, a barrier with the next number
// and the same description. A rank whose part of the call is done early waits there for the others, so a disagreement about
// the call is found there at the latest. Both are launched together, so that no other thread's call comes between them.
struct StartedCall {
  NumberedCall made, confirmation;

  bool done() const { return made.done() && confirmation.done(); }
  template <class Operation>
  Status finish(GroupState& group, const WaitContext& context, const Operation& operation) const {
    Status ended = made.finish(group, context, operation);
    return confirmation.exists() ? confirm(group, ended, context, operation) : ended;
  }

 private:
  Status confirm(GroupState& group, const Status& ended, const WaitContext& context,
                 const std::function<std::string()>& operation) const;
};

class GroupWork final : public Work {
 public:
  GroupWork(std::shared_ptr<GroupState> group, StartedCall started, std::string operation)
      : group_(std::move(group)),
        started_(std::move(started)),
        operation_(std::move(operation)) {}
  ~GroupWork() override;
  bool done() const override { return started_.done(); }
  Status wait(const WaitContext& context) override;
  void cancel() override;
  Rank waits_for() const override;
  std::string where() const override;

 private:
  const Work* running() const;  // null: it could not be launched

  const std::shared_ptr<GroupState> group_;
  const StartedCall started_;
  const std::string operation_;
  bool told_ = false;
  Status outcome_;
};

}  // namespace pc
