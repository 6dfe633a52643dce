// Marks in the queues of a GPU: recorded on one stream, awaited by others, asked for by the host.
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

// Takes no times, which makes it cheaper. Being awaited, an event means the newest record that was made before the wait was
// queued, so who records it again must know that everybody has queued his wait.
// Thread-safety: get() from any thread; one owner otherwise. The destructor calls the driver, so the event must go before the
// process ends: no static. Work that waits for it may still be queued then.
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

// The stream's context must be current, and be the event's.
Status record(const Driver& driver, CUevent event, CUstream stream);
// Whether what it was last recorded for is done; also if it never was recorded. An error may be that of work on the GPU.
Result<bool> is_reached(const Driver& driver, CUevent event);

// Events of one context, used again: making one takes the driver some microseconds and a lock. An event may come back while
// what it was recorded for is still going on: waits that are queued keep their record. Events that were recorded into a CUDA
// graph must not come from here: nobody may ask for them afterwards.
// Thread-safety: take() from any thread; what it gave may go in any thread, also after the pool.
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
  // Makes events until so many can be taken.
  Status reserve(std::size_t count);

 private:
  Context context_;
  std::shared_ptr<FreeList> free_list_;
};

}  // namespace pc::cuda
