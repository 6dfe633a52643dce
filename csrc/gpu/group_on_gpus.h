// Selects the backend of each call of one group with arrays on GPUs. The call uses NCCL if the
// group's ranks have joined by NCCL and NCCL supports the call. Otherwise it runs directly from
// array to array if the ranks can access each other's arrays, and through the host if they cannot.
// The selection depends only on what all ranks know, so all ranks select the same backend.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "gpu/device_calls.h"
#include "gpu/staging/staged_calls.h"

namespace pc {

// Thread-safety: all methods. The group must outlive it.
class GroupOnGpus {
 public:
  using Backend = Result<std::shared_ptr<DeviceCalls>>;  // a backend, or the reason why the group lacks it
  // `driver` must be open.
  GroupOnGpus(Communicator& group, std::shared_ptr<const cuda::Driver> driver, int device, Backend nccl,
              Backend peers)
      : group_(group),
        driver_(std::move(driver)),
        device_(device),
        nccl_(std::move(nccl)),
        peers_(std::move(peers)) {}

  // Returns OK if the group has joined by NCCL, otherwise the reason why it has not.
  const Status& by_nccl() const { return nccl_.status(); }
  // returns OK if this call uses NCCL, otherwise the reason why it does not
  Status by_nccl(const UserCall& call) const;
  // Returns "nccl", "peers" (from array to array) or "staged" (through the host).
  std::string_view backend_of(const UserCall& call) const;
  // Describes for the user the path that this collective takes with an ordinary array, and why no
  // better path is available.
  std::string explain(Collective collective) const;
  // If is_in_stream_order(call) is true and the arrays have a stream, returns once the call is
  // queued on that stream. Otherwise returns once the call has ended.
  Status run(const UserCall& call, double timeout_s);
  // `on_end` is called once when the call has ended, in another thread; it must not block. It is
  // not called if begin() fails, nor for calls captured into a CUDA graph. If `on_caller_stream`
  // and is_in_stream_order(call) are true, the call is queued on the stream of its arrays.
  // Otherwise it runs on a separate stream.
  Result<std::shared_ptr<GpuWork>> begin(const UserCall& call, double timeout_s,
                                         std::function<void(const Status&)> on_end = {},
                                         bool on_caller_stream = false);
  // Returns true if the call is queued on a stream and the host does not wait for it.
  bool is_in_stream_order(const UserCall& call) const;
  Status settle(double timeout_s);  // see DeviceCalls; does not wait for calls through the host
  Status close(double timeout_s);
  void begin_abort(const Status& why);  // does not wait; abort() must follow
  void abort(const Status& why);

  Communicator& group() const { return group_; }
  // See Devices in comm/devices.h.
  bool can_split() const { return nccl_.is_ok() && nccl_.value()->can_split(); }
  Result<std::shared_ptr<GroupOnGpus>> split(Communicator* child, double timeout_s);

 private:
  DeviceCalls* direct(const UserCall& call) const;  // returns null if the call runs through the host
  Result<std::shared_ptr<StagedCalls>> staged();

  Communicator& group_;
  const std::shared_ptr<const cuda::Driver> driver_;
  const int device_;
  const Backend nccl_, peers_;
  std::mutex mutex_;
  std::shared_ptr<StagedCalls> staged_;  // guarded by mutex_; created for the first call through the host
};

}  // namespace pc
