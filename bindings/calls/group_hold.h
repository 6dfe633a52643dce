// What a group that is not the world has taken. It is given back when the Group in Python is closed or gone, and no call needs it.
#pragma once

#include <memory>

#include "bindings/state/group_object.h"

namespace pc {

// Shared by a Group in Python and the calls on it that are under way. Thread-safety: with the GIL.
class GroupHold {
 public:
  // `communicator`: of Runtime::make_group().
  GroupHold(std::shared_ptr<Session> session, Communicator& communicator)
      : session_(std::move(session)),
        communicator_(communicator) {}
  GroupHold(const GroupHold&) = delete;
  GroupHold& operator=(const GroupHold&) = delete;
  ~GroupHold();

 private:
  const std::shared_ptr<Session> session_;
  Communicator& communicator_;  // valid while session_->runtime is
};

}  // namespace pc
