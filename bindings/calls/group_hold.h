// The resources of a group that is not the world. They are released once the Group in Python is
// closed or destroyed and its last running call has ended.
#pragma once

#include <memory>

#include "bindings/state/group_object.h"

namespace pc {

// Shared by a Group in Python and its running calls. Thread-safety: with the GIL.
class GroupHold {
 public:
  // `communicator` comes from Runtime::make_group().
  GroupHold(std::shared_ptr<Session> session, Communicator& communicator)
      : session_(std::move(session)),
        communicator_(communicator) {}
  GroupHold(const GroupHold&) = delete;
  GroupHold& operator=(const GroupHold&) = delete;
  ~GroupHold();

 private:
  const std::shared_ptr<Session> session_;
  Communicator& communicator_;  // valid until session_->runtime is null
};

}  // namespace pc
