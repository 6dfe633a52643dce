#include "bindings/calls/group_hold.h"

#include "bindings/python/ref.h"
#include "bindings/state/without_gil.h"

namespace pc {

GroupHold::~GroupHold() {
  std::shared_ptr<Runtime> runtime = session_->runtime;
  if (session_->forked || runtime == nullptr || !holds_gil()) return;
  const WithoutGil released;
  runtime->close_group(communicator_);
  runtime.reset();  // this may be the last reference, and its release may wait
}

}  // namespace pc
