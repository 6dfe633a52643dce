// What has been launched on a group, for whoever waits for it or looks after it in the meantime.
#pragma once

#include <memory>
#include <string>

#include "failure/group_calls.h"
#include "operation/message_numbers.h"
#include "operation/reentry.h"

namespace pc {

// What the Work of a group shares with it, and may outlive it with.
struct GroupState {
  GroupState(const GroupCalls::Parts& parts, uint32_t group, GroupNames names)
      : calls(parts, group, std::move(names)) {}
  GroupCalls calls;
  Reentry reentry;
  MessageNumbers messages;
};

// Its wait() puts the end into the words of the group, and tells the others.
class LaunchedWork : public Work {
 public:
  // To be called every now and then while nobody drives it: warns, and asks the rank that it waits for.
  virtual void look_after(TimePoint now) = 0;
  // It is done, or its deadline over. If it went wrong, the other ranks are asked what wait() would wait for. True: their
  // answers may still come. Does not wait.
  virtual bool asks(const WaitContext& context) = 0;
  virtual uint64_t sequence() const = 0;             // in its group; 0: a message
  virtual const std::string& operation() const = 0;  // "allreduce #12 (ring, 64 MiB float32 sum)"
  const std::shared_ptr<GroupState>& shared_group() const { return group_; }

 protected:
  explicit LaunchedWork(std::shared_ptr<GroupState> group) : group_(std::move(group)) {}
  const std::shared_ptr<GroupState> group_;
};

}  // namespace pc
