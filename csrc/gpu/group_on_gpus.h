// The backend of each call of one group between GPUs. A call uses NCCL if the group's ranks have
// joined there and NCCL supports the call; otherwise it runs from array to array if the ranks can
// access each other's arrays; otherwise it runs through the host. The choice depends only on what
// all ranks know, so all make the same one.
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
  using Backend = Result<std::shared_ptr<DeviceCalls>>;  // or the reason for its absence
  // The driver must have been opened.
  GroupOnGpus(Communicator& group, std::shared_ptr<const cuda::Driver> driver, int device, Backend nccl,
              Backend peers)
      : group_(group),
        driver_(std::move(driver)),
        device_(device),
        nccl_(std::move(nccl)),
        peers_(std::move(peers)) {}

  // Returns an error if NCCL takes no call of this group, with the reason.
  const Status& by_nccl() const { return nccl_.status(); }
  // returns an error if NCCL does not take this call, with the reason
  Status by_nccl(const UserCall& call) const;
  // "nccl", "peers" (from array to array) or "staged" (through the host).
  std::string_view backend_of(const UserCall& call) const;
  // Describes, for the user, the path of this collective with an ordinary array, and why no better
  // one is available.
  std::string explain(Collective collective) const;
  // Returns when the call is queued on the stream of its arrays. A call through the host, or
  // without a stream, has ended then.
  Status run(const UserCall& call, double timeout_s);
  // `on_end` is called once when the call has ended, in another thread; it must not block. It is
  // not called if begin() fails, nor for calls captured into a CUDA graph. `on_caller_stream`
  // queues the call on the stream of its arrays itself if is_in_stream_order(); otherwise it runs
  // on a separate stream.
  Result<std::shared_ptr<GpuWork>> begin(const UserCall& call, double timeout_s,
                                         std::function<void(const Status&)> on_end = {},
                                         bool on_caller_stream = false);
  // Returns whether the call is queued on a stream without the host waiting for it.
  bool is_in_stream_order(const UserCall& call) const;
  Status settle(double timeout_s);  // DeviceCalls; calls through the host have been waited for
  Status close(double timeout_s);
  void begin_abort(const Status& why);  // does not wait; abort() must follow
  void abort(const Status& why);

  Communicator& group() const { return group_; }
  // See DeviceGroups.
  bool can_split() const { return nccl_.is_ok() && nccl_.value()->can_split(); }
  Result<std::shared_ptr<GroupOnGpus>> split(Communicator* child, double timeout_s);

 private:
  DeviceCalls* direct(const UserCall& call) const;  // null: the call runs through the host
  Result<std::shared_ptr<StagedCalls>> staged();

  Communicator& group_;
  const std::shared_ptr<const cuda::Driver> driver_;
  const int device_;
  const Backend nccl_, peers_;
  std::mutex mutex_;
  std::shared_ptr<StagedCalls> staged_;  // guarded by mutex_; created for the first such call
};

}  // namespace pc
