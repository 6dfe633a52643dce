#include "bindings/python/ended_calls.h"

#include <Python.h>

#include <utility>

namespace pc {

void EndedCalls::add(std::shared_ptr<Ended> ended) {
  {
    const std::lock_guard lock(mutex_);
    ended_.push_back(std::move(ended));
    any_.store(true);
  }
  if (asked_.exchange(true)) return;
  // Py_AddPendingCall needs no GIL. If its queue is full, the next pycollective call settles the
  // objects.
  if (Py_AddPendingCall([](void* self) { return static_cast<EndedCalls*>(self)->settle(), 0; }, this) != 0)
    asked_.store(false);
}

void EndedCalls::settle() {
  asked_.store(false);
  if (!any_.load()) return;
  std::vector<std::shared_ptr<Ended>> all;
  {
    // Does not wait for the lock: the thread that holds it adds a call and then requests settle()
    // again, or does not exist in this forked child.
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return;
    all.swap(ended_);
    any_.store(false);
  }
  for (const std::shared_ptr<Ended>& each : all) each->settle();
}

}  // namespace pc
