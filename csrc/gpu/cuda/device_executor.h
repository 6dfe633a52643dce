// The interface between calls with arrays on GPUs and the backends that run them on GPUs: NCCL, or
// direct access to the memory of peers. A call that is staged through the host does not use this
// interface; it is a call of the group (gpu/staging).
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

// One launched call. The resources of the call are kept until its end has been observed, even if no
// reference to this object is left. Thread-safety: all methods.
class DeviceWork {
 public:
  virtual ~DeviceWork() = default;  // does not wait

  // Makes everything that is queued on `stream` from now on wait for the call. The host waits only
  // if DeviceExecutor::in_stream_order() is false. The result does not report how the call ends.
  virtual Status precede(CUstream stream) = 0;
  // Waits until the call has ended. If the context ends the wait earlier, the call continues.
  // Returns the call's error if the call has failed, and kUnsupported if the call is part of a
  // graph and has not been run.
  virtual Result<WaitEnd> wait_on_host(const WaitContext& context) = 0;
  virtual std::optional<Status> outcome() const = 0;  // how the call ended; none while it runs
  // Like outcome(), but as of the last poll_all(), which queries the GPU once for many calls.
  virtual std::optional<Status> seen() const = 0;
  bool done() const { return outcome().has_value(); }
  // Gives the call up if no rank has begun it. If it returns true, no rank will begin the call, so
  // the owner may reuse the arrays, but the executor must be aborted. If it returns false, the call
  // can only be awaited.
  virtual bool give_up() { return false; }
  // Returns true if the call's error concerns this call alone and is the same on all ranks, and the
  // call has changed nothing. Then the next call may succeed.
  virtual bool is_refused() const { return false; }
  // Returns true if the call was captured into a CUDA graph. Such a call runs at each launch of the
  // graph, and ends with the graph.
  virtual bool in_graph() const = 0;
};

struct DeviceCall {
  // request.stream is the stream on which the arrays are made, and on which they are used after the
  // call; null: the legacy default stream
  Request request;
  // true: the call is queued directly on request.stream, because the caller would make that stream
  // wait for the call at once anyway. false: the call runs concurrently on a stream of the
  // executor.
  bool on_caller_stream = false;
  std::shared_ptr<const void> keeps = {};  // keeps the arrays alive; released when the call has ended
  // Set by ready() if the call's stream is being captured into a CUDA graph.
  bool is_captured = false;
  // The value that agreed() reaches once all ranks have made this call and the calls before it.
  // Streams wait for this value after the call. If there is none, they do not wait.
  std::optional<uint32_t> number = {};
};

// Thread-safety: all methods. Launches of one group are issued in the same order on every rank.
class DeviceExecutor {
 public:
  virtual ~DeviceExecutor() = default;  // close() or abort() must precede it
  virtual std::string_view name() const = 0;
  // Returns true if precede() of a call returns at once. Otherwise precede() makes the host wait
  // for the end of the call.
  virtual bool in_stream_order() const { return true; }
  // The time after its deadline during which a call may still report its own failure.
  virtual double grace_s() const { return 0; }
  // Returns OK if such a call is supported, otherwise kUnsupported with the reason. The result is
  // the same on all ranks.
  virtual Status can(const Request& request) const = 0;
  // Returns OK, or the reason why this call cannot be queued on its stream now. It is called before
  // the other ranks are informed of the call.
  virtual Status ready(DeviceCall& call) = 0;
  // The semaphore on which streams wait. The code that compares calls raises it to the number of
  // each call that all ranks have made. If it is null, streams pass calls at once.
  virtual std::shared_ptr<TimelineSemaphore> agreed() const { return nullptr; }
  // Queues the call. `context` limits the time for which the host may wait in the launch.
  virtual Result<std::shared_ptr<DeviceWork>> launch(const DeviceCall& call, const WaitContext& context) = 0;
  // Queries the progress of all calls, even if no thread waits for them, and releases the arrays of
  // calls that have ended. Returns an error if no more calls can be made.
  virtual Status poll_all() = 0;
  virtual std::size_t running() const = 0;  // number of calls that still keep their arrays alive
  // Aborts every call, including later ones. If not all ranks have made a call, its floating-point
  // results are set to NaN before a stream passes the call, if the driver responds in time. `last`
  // is the number of the last call that has begun. From now on the caller does not signal agreed().
  virtual void abort(const Status& why, uint32_t last) = 0;
  virtual Status close(const WaitContext& context) = 0;  // all ranks must have made the same calls
  // Creates an executor for those ranks that pass the same color (0 or more), ordered by key.
  // Returns null for a negative color. All ranks call it after the same calls, and it waits until
  // these calls have ended. If it fails on any rank, only abort() may follow.
  virtual Result<std::unique_ptr<DeviceExecutor>> split(int /*color*/, int /*key*/,
                                                        const WaitContext& /*context*/) {
    return Status(Code::kUnsupported, std::string(name()) + " makes no groups of some of its ranks");
  }
};

}  // namespace pc::cuda
