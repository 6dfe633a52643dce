// One operation of a group, a collective or a message, from its number to the outcome that its
// caller gets at once, later, or never.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "engine/executor.h"
#include "operation/group_state.h"

namespace pc {

// wait() turns the end into the group's error, and notifies the other ranks. Not movable.
class Operation : public Work {
 public:
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  // Called periodically while no thread drives it: logs a warning, and queries the rank for which
  // the operation waits.
  virtual void look_after(TimePoint now) = 0;
  // Called when the operation is done or its deadline has passed. If it failed, requests the
  // reports for which wait() would wait. Returns true while reports are outstanding. Does not wait.
  virtual bool requests_reports(const WaitContext& context) = 0;
  virtual uint64_t sequence() const = 0;  // in its group; 0: a message
  virtual std::string text() const = 0;   // "allreduce #12 (ring, 64 MiB float32 sum)"
  // null: its caller keeps the group alive
  const std::shared_ptr<GroupState>& kept_group() const { return kept_; }

 protected:
  // `kept` is the same group, for an operation that may outlive its caller's group, as in an
  // AsyncWork.
  explicit Operation(GroupState& group, std::shared_ptr<GroupState> kept = nullptr)
      : group_(group),
        kept_(std::move(kept)) {}

  GroupState& group_;

 private:
  const std::shared_ptr<GroupState> kept_;
};

}  // namespace pc
