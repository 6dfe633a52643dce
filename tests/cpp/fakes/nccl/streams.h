// A FAKE of NCCL: issued calls in the streams of the fake driver. A rank's operation starts when
// its stream reaches it, and in issue order across several streams. The last rank moves the data,
// and all streams continue. An operation in a graph runs whenever the graph is replayed.
//
// Locks: the driver calls is_ready() with its own mutex held, and is_ready() locks ours. So no
// function calls the driver with ours held.
//
// Not emulated: one group on several streams.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "comms.h"
#include "movement.h"

namespace fake_nccl {

inline int is_ready(void* data) {
  Operation& own = *static_cast<Operation*>(data);
  const std::lock_guard lock(fake().mutex);
  if (own.life->dead) return 1;
  if (!own.arrived) {
    if (own.life->busy || (own.position >= 0 && own.position != own.life->next)) return 0;
    own.arrived = own.life->busy = true;
    own.missing = own.calls.size();
    arrive(*own.comm, own.calls, &own);
  }
  return own.missing == 0 ? 1 : 0;
}
inline void go_on(void* data) {
  Operation& own = *static_cast<Operation*>(data);
  const std::lock_guard lock(fake().mutex);
  own.arrived = own.life->busy = false;
  if (own.position >= 0) ++own.life->next;
}
inline void drop(void* data) {
  const std::unique_ptr<Operation> own(static_cast<Operation*>(data));
  const std::lock_guard lock(fake().mutex);
  forget(*own->world, own.get());
}

// Takes the calls that were issued on a communicator. Call with the fake's mutex held. Returns null
// if they have completed or there are none.
inline std::unique_ptr<Operation> take_issued(Comm& comm) {
  std::vector<Call> calls = std::exchange(comm.group, {});
  if (calls.empty()) return nullptr;
  if (fake().enqueue == nullptr) {
    arrive(comm, calls, nullptr);
    return nullptr;
  }
  for (const Call& each : calls)
    if (each.stream != calls[0].stream) violation("the fake plays no group on several streams");
  return std::make_unique<Operation>(
      Operation{comm.world, comm.life, &comm, std::move(calls), comm.life->issued++});
}
// Call without the mutex: the driver locks its own first.
inline void queue(std::unique_ptr<Operation> operation) {
  if (operation == nullptr) return;
  Operation& own = *operation;
  const std::shared_ptr<Life> life = own.life;
  const auto enqueue = [] {
    const std::lock_guard lock(fake().mutex);
    return fake().enqueue;
  }();
  const int answer = enqueue(own.calls[0].stream, is_ready, go_on, drop, operation.release());
  const std::lock_guard lock(fake().mutex);
  if (answer < 0) violation("a call on a stream that is none");
  if (answer == 0) return;
  --life->issued;
  if (answer == 1) own.position = -1;
}

}  // namespace fake_nccl
