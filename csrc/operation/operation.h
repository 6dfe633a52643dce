// One operation of a group, a collective or a message, from the assignment of its number to its
// outcome. The caller may request the outcome at once, later, or never.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "engine/executor.h"
#include "operation/group_state.h"

namespace pc {

// If the operation has failed, wait() returns the error for the caller and notifies the other
// ranks. Not movable.
class Operation : public Work {
 public:
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  // Called periodically while no thread drives the operation. Logs a warning after a long wait, and
  // queries the rank for which the operation waits.
  virtual void look_after(TimePoint now) = 0;
  // Called when the operation is done or its deadline has passed. If it failed, requests the
  // reports for which wait() would wait. Returns true while reports are outstanding. Does not wait.
  virtual bool requests_reports(const WaitContext& context) = 0;
  virtual uint64_t sequence() const = 0;  // number in the group; 0: a message
  virtual std::string text() const = 0;   // "allreduce #12 (ring, 64 MiB float32 sum)"
  // null: the caller keeps the group alive
  const std::shared_ptr<GroupState>& kept_group() const { return kept_; }

 protected:
  // `kept` is the same group. Pass it if the operation may outlive the caller's use of the group,
  // as in an AsyncWork.
  explicit Operation(GroupState& group, std::shared_ptr<GroupState> kept = nullptr)
      : group_(group),
        kept_(std::move(kept)) {}

  GroupState& group_;

 private:
  const std::shared_ptr<GroupState> kept_;
};

}  // namespace pc
