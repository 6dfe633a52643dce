// The interface between a call of arrays on GPUs and its implementations there: NCCL, or the memory
// of peers. A call that is staged through the host is a call of the group instead (gpu/staging).
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

// One launched call. It keeps what it needs until its end has been observed, even if no reference
// to it is left. Thread-safety: all methods.
class DeviceWork {
 public:
  virtual ~DeviceWork() = default;  // does not wait

  // Orders everything queued on `stream` from now on after the call. The host does not wait. The
  // result does not tell how the call ends.
  virtual Status precede(CUstream stream) = 0;
  // Waits until the call has ended or the context ends the wait, which leaves the call unchanged.
  // Returns the call's error if it has failed. Returns kUnsupported if the call is part of a graph
  // and has not been run.
  virtual Result<WaitEnd> wait_on_host(const WaitContext& context) = 0;
  virtual std::optional<Status> outcome() const = 0;  // how it ended; none while it runs
  // Like outcome(), but as of the last look_around(), which queries the GPU once for many calls.
  virtual std::optional<Status> seen() const = 0;
  bool done() const { return outcome().has_value(); }
  // Returns true if no rank has begun the call and none will: the arrays are their owner's again,
  // and the executor must be aborted. Returns false if the call can only be waited for.
  virtual bool give_up() { return false; }
  // Returns true if its error concerns this call alone, is the same on all ranks and has changed
  // nothing: the next call may succeed.
  virtual bool is_refused() const { return false; }
  // Returns true if it was captured into a CUDA graph. It runs whenever that graph is launched, and
  // ends with it.
  virtual bool in_graph() const = 0;
};

struct DeviceCall {
  // its stream is the one on which its arrays are made and used afterwards; null: the legacy
  // default stream
  Request request;
  // Whether to queue it directly on that stream, for callers that would wait for it there at once.
  // Otherwise it runs concurrently on a stream of the executor.
  bool on_caller_stream = false;
  std::shared_ptr<const void> keeps = {};  // keeps the arrays alive; released when the call has ended
  // Set by ready() if its stream is being captured into a CUDA graph.
  bool is_captured = false;
  // The value that agreed() reaches once all ranks have made this call and the calls before it;
  // streams pass the call only then. Null: they pass it at once.
  std::optional<uint32_t> number = {};
};

// Thread-safety: all methods. Launches of one group are issued in the same order on every rank.
class DeviceExecutor {
 public:
  virtual ~DeviceExecutor() = default;  // close() or abort() must precede it
  virtual std::string_view name() const = 0;
  // Returns whether precede() of its works returns at once. Otherwise the host waits there for the
  // end of the call.
  virtual bool in_stream_order() const { return true; }
  // How long after its deadline a call may still report its own failure.
  virtual double grace_s() const { return 0; }
  // Returns OK, or kUnsupported with the reason. The result depends only on what all ranks know.
  virtual Status can(const Request& request) const = 0;
  // Returns OK, or the reason why this call cannot be queued on its stream now. It is called before
  // other ranks are informed of the call.
  virtual Status ready(DeviceCall& call) = 0;
  // The semaphore that the code comparing the calls raises to the number of each call that all
  // ranks have made. Null: streams pass calls at once.
  virtual std::shared_ptr<TimelineSemaphore> agreed() const { return nullptr; }
  // Queues the call. The context bounds what the host has to wait for meanwhile.
  virtual Result<std::shared_ptr<DeviceWork>> launch(const DeviceCall& call, const WaitContext& context) = 0;
  // Completes calls that no thread waits for: releases what ended calls keep. An error is the
  // reason why no more calls can be made.
  virtual Status look_around() = 0;
  virtual std::size_t running() const = 0;  // calls of which it still keeps the arrays
  // Aborts every call, now and later. The floating-point results of calls that have not been agreed
  // are set to NaN before a stream passes them, if the driver responds in time. `last` is the
  // number of the last call that has begun. The caller does not signal agreed() any more.
  virtual void abort(const Status& why, uint32_t last) = 0;
  virtual Status close(const WaitContext& context) = 0;  // requires that all ranks have made the same calls
  // Creates an executor for those of its ranks that pass this color (0 or more), ordered by key.
  // Returns null for a negative color. All ranks call it after the same calls, and it waits for
  // those. If it fails on any rank, only abort() may follow.
  virtual Result<std::unique_ptr<DeviceExecutor>> split(int /*color*/, int /*key*/,
                                                        const WaitContext& /*context*/) {
    return Status(Code::kUnsupported, std::string(name()) + " makes no groups of some of its ranks");
  }
};

}  // namespace pc::cuda
