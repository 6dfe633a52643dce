// Markers in the queues of a GPU: recorded on one stream, awaited by other streams, queried by the
// host.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "gpu/cuda/context.h"
#include "gpu/cuda/driver.h"

namespace pc::cuda {

enum class EventReach : uint8_t {
  kProcess,
  kProcesses,  // another process may open it by its handle (ipc.h)
};

// An event without times, which is cheaper. A wait for an event refers to the newest record made
// before the wait was queued, so all waits must be queued before the event is recorded again. An
// event may be destroyed while queued work still waits for it. The destructor calls the driver, so
// the event must be destroyed before the process ends and must not be static. Thread-safety: get()
// from any thread; one owner otherwise.
class Event {
 public:
  static Result<Event> create(const Context& context, EventReach reach = EventReach::kProcess);
  static Event adopt(Context context, CUevent event) { return {std::move(context), event}; }
  Event(Event&& other) noexcept
      : context_(std::move(other.context_)),
        event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&&) = delete;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event();

  CUevent get() const { return event_; }
  const Context& context() const { return context_; }

 private:
  Event(Context context, CUevent event) : context_(std::move(context)), event_(event) {}
  Context context_;
  CUevent event_;
};

// Records the event on the stream. Both must belong to the current context.
Status record(const Driver& driver, CUevent event, CUstream stream);
// Returns true if the work before the last record of `event` is done, or if `event` was never
// recorded. An error may come from earlier work on the GPU.
Result<bool> is_reached(const Driver& driver, CUevent event);

// Reuses the events of one context, because creating an event costs the driver some microseconds
// and a lock. A lease may be destroyed before its event is reached, because queued waits remain
// valid. Events that are recorded into a CUDA graph must not come from this pool, because they
// cannot be queried afterwards. Thread-safety: take() from any thread; a lease may be destroyed in
// any thread, also after the pool.
class EventPool {
  struct FreeList {
    std::mutex mutex;
    std::vector<Event> events;  // guarded by mutex
  };

 public:
  class Lease {
   public:
    Lease(Lease&&) noexcept = default;
    Lease& operator=(Lease&&) = delete;
    ~Lease();
    CUevent get() const { return event_.get(); }

   private:
    friend class EventPool;
    Lease(std::shared_ptr<FreeList> free_list, Event event)
        : free_list_(std::move(free_list)),
          event_(std::move(event)) {}
    std::shared_ptr<FreeList> free_list_;  // null: moved from
    Event event_;
  };

  explicit EventPool(Context context)
      : context_(std::move(context)),
        free_list_(std::make_shared<FreeList>()) {}
  Result<Lease> take();
  // Creates events until `count` are free.
  Status reserve(std::size_t count);

 private:
  Context context_;
  std::shared_ptr<FreeList> free_list_;
};

}  // namespace pc::cuda
