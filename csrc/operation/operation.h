// One operation of a group, a collective or a message, from its number to what its caller is told: at once, later, or never.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "engine/executor.h"
#include "operation/group_state.h"

namespace pc {

// Its wait() puts the end into the words of the group, and tells the others. Stays where it is.
class Operation : public Work {
 public:
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  // To be called every now and then while no thread drives it: warns, and asks the rank that it waits for.
  virtual void look_after(TimePoint now) = 0;
  // It is done, or its deadline over. If it went wrong, the other ranks are asked what wait() would wait for. True: their
  // answers may still come. Does not wait.
  virtual bool requests_reports(const WaitContext& context) = 0;
  virtual uint64_t sequence() const = 0;  // in its group; 0: a message
  virtual std::string text() const = 0;   // "allreduce #12 (ring, 64 MiB float32 sum)"
  const std::shared_ptr<GroupState>& kept_group() const { return kept_; }  // null: its caller keeps the group

 protected:
  // `kept`: the same, for an operation that may outlive its caller's group, as each of an AsyncWork does.
  explicit Operation(GroupState& group, std::shared_ptr<GroupState> kept = nullptr)
      : group_(group),
        kept_(std::move(kept)) {}

  GroupState& group_;

 private:
  const std::shared_ptr<GroupState> kept_;
};

}  // namespace pc
