#include "gpu/cuda/event.h"

#include <optional>

#include "gpu/cuda/capture_mode.h"

namespace pc::cuda {

Result<Event> Event::create(const Context& context, EventReach reach) {
  PC_ASSIGN_OR_RETURN(const ContextGuard current, context.enter());
  const OwnCaptureMode none(context.driver(), CU_STREAM_CAPTURE_MODE_RELAXED);  // the caller may be capturing
  const unsigned reach_flag = reach == EventReach::kProcesses ? CU_EVENT_INTERPROCESS : 0U;
  CUevent event = nullptr;
  PC_TRY(context.driver().check(context.driver().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | reach_flag),
                                "cuEventCreate"));
  return Event(context, event);
}

Event::~Event() {
  if (event_ == nullptr || !context_.driver().is_usable()) return;
  const Result<ContextGuard> current = context_.enter();
  const OwnCaptureMode none(context_.driver(), CU_STREAM_CAPTURE_MODE_RELAXED);
  if (current.is_ok()) (void)context_.driver().cuEventDestroy(event_);
}

Status record(const Driver& driver, CUevent event, CUstream stream) {
  return driver.check(driver.cuEventRecord(event, stream), "cuEventRecord");
}

Result<bool> is_reached(const Driver& driver, CUevent event) {
  const OwnCaptureMode own(driver);
  const CUresult result = driver.cuEventQuery(event);
  if (result == CUDA_ERROR_NOT_READY) return false;
  PC_TRY(driver.check(result, "cuEventQuery"));
  return true;
}

Result<EventPool::Lease> EventPool::take() {
  std::optional<Event> event;
  {
    const std::lock_guard lock(free_list_->mutex);
    if (!free_list_->events.empty()) {
      event.emplace(std::move(free_list_->events.back()));
      free_list_->events.pop_back();
    }
  }
  if (event) return Lease(free_list_, std::move(*event));
  PC_ASSIGN_OR_RETURN(Event made, Event::create(context_));
  return Lease(free_list_, std::move(made));
}

Status EventPool::reserve(std::size_t count) {
  for (;;) {
    {
      const std::lock_guard lock(free_list_->mutex);
      if (free_list_->events.size() >= count) return Status::ok();
    }
    PC_ASSIGN_OR_RETURN(Event made, Event::create(context_));
    const std::lock_guard lock(free_list_->mutex);
    free_list_->events.push_back(std::move(made));
  }
}

EventPool::Lease::~Lease() {
  if (free_list_ == nullptr) return;
  const std::lock_guard lock(free_list_->mutex);
  free_list_->events.push_back(std::move(event_));
}

}  // namespace pc::cuda
