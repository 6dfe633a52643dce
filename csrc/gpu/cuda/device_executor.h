// The seam between a call of arrays on GPUs and the ways to run it there: NCCL, or the memory of peers. What goes through the host is
// a call of the group instead (gpu/staging).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/waiter.h"
#include "engine/request.h"
#include "gpu/cuda/driver.h"
#include "gpu/cuda/timeline_semaphore.h"

namespace pc::cuda {

// One launched call. It keeps what it needs until its end has been seen, also if nobody holds it any more.
// Thread-safety: all methods.
class DeviceWork {
 public:
  virtual ~DeviceWork() = default;  // does not wait

  // What is queued on `stream` from now on comes after the call. Costs the host nothing; says nothing of how the call ends.
  virtual Status precede(CUstream stream) = 0;
  // Until it has ended or the context does, which leaves it as it is. Errors: how it ended. kUnsupported: it is part of a
  // graph, and has not been run.
  virtual Result<WaitEnd> wait_on_host(const WaitContext& context) = 0;
  virtual std::optional<Status> outcome() const = 0;  // how it ended, if it has
  // The same as far as look_around() has seen it, which asks the GPU once for many.
  virtual std::optional<Status> seen() const = 0;
  bool done() const { return outcome().has_value(); }
  // True: nobody has begun with it, and nobody will, so that its arrays are their owner's again; then the executor is to be aborted.
  // False: it can only be waited for.
  virtual bool give_up() { return false; }
  // Its error is that of this one call, on all ranks alike, which has changed nothing: the next call may go well.
  virtual bool is_refused() const { return false; }
  // It went into a CUDA graph, and runs whenever that is launched: its end is the graph's.
  virtual bool in_graph() const = 0;
};

struct DeviceCall {
  Request
      request;  // its stream: on which its arrays are made, and used afterwards. Null: the legacy default stream
  // Straight on that stream, for callers who would wait for it there at once; else beside it, on a stream of the executor.
  bool on_caller_stream = false;
  std::shared_ptr<const void> keeps = {};  // what its arrays need to live, let go when the call has ended
  // Set by ready(): its stream is being captured into a CUDA graph.
  bool is_captured = false;
  // What agreed() reaches when all ranks have made it and the calls before it. Streams go past the call only then; null: at once.
  std::optional<uint32_t> number = {};
};

// Thread-safety: all methods. Launches of one group come in the same order on every rank.
class DeviceExecutor {
 public:
  virtual ~DeviceExecutor() = default;  // close() or abort() comes first
  virtual std::string_view name() const = 0;
  // Whether a work's precede() returns at once; else the host waits for the call's end there.
  virtual bool in_stream_order() const { return true; }
  // How long after its deadline a call may still say by itself what went wrong.
  virtual double grace_s() const { return 0; }
  // OK, or kUnsupported and why not: a function of what all ranks know.
  virtual Status can(const Request& request) const = 0;
  // OK, or why this call cannot be queued on its stream now: asked before other ranks hear of it.
  virtual Status ready(DeviceCall& call) = 0;
  // Reaches the number of each call that all ranks have made, by who compares them. Null: streams go past calls at once.
  virtual std::shared_ptr<TimelineSemaphore> agreed() const { return nullptr; }
  // Queues it. The context is for what the host has to wait for meanwhile.
  virtual Result<std::shared_ptr<DeviceWork>> launch(const DeviceCall& call, const WaitContext& context) = 0;
  // Looks after calls that nobody waits for: lets go of what those keep that have ended. Errors: why no more can be made.
  virtual Status look_around() = 0;
  virtual std::size_t running() const = 0;  // calls whose arrays it still keeps
  // Everything, now and later. The floating-point results of calls that have not been agreed are NaN before a stream goes past
  // them, if the driver answers in time. `last`: of the calls that have begun; agreed() is signalled by nobody else any more.
  virtual void abort(const Status& why, uint32_t last) = 0;
  virtual Status close(const WaitContext& context) = 0;  // when all ranks have made the same calls
  // One among those of its ranks that give this color (0 or more), ordered by key; null for a negative color. All ranks call it,
  // after the same calls, for which it waits. If it fails, also on another rank, nothing is left but abort().
  virtual Result<std::unique_ptr<DeviceExecutor>> split(int /*color*/, int /*key*/,
                                                        const WaitContext& /*context*/) {
    return Status(Code::kUnsupported, std::string(name()) + " makes no groups of some of its ranks");
  }
};

}  // namespace pc::cuda
