// How the calls of one group go between GPUs. A call goes by NCCL if the group's ranks have joined there and NCCL has that call; else
// from array to array if they reach each other's; else through the host. All are functions of what all ranks know, so all go one way.
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
  using Backend = Result<std::shared_ptr<DeviceCalls>>;  // or the reason why there is none
  // The driver has been opened.
  GroupOnGpus(Communicator& group, std::shared_ptr<const cuda::Driver> driver, int device, Backend nccl,
              Backend peers)
      : group_(group),
        driver_(std::move(driver)),
        device_(device),
        nccl_(std::move(nccl)),
        peers_(std::move(peers)) {}

  // Not OK: NCCL takes no call of this group, and why.
  const Status& by_nccl() const { return nccl_.status(); }
  Status by_nccl(const UserCall& call) const;  // not OK: NCCL does not take this call, and why
  // "nccl", "peers" (from array to array) or "staged" (through the host).
  std::string_view backend_of(const UserCall& call) const;
  // Which way this collective goes with an ordinary array, and why no better one. For people.
  std::string explain(Collective collective) const;
  // Returns when the call is queued on the stream of its arrays, or, through the host and for who has no stream, has ended.
  Status run(const UserCall& call, double timeout_s);
  // `on_end`: once, when it has ended, in another thread; shall not wait. Not if this fails, nor for what goes into a CUDA graph.
  // `on_caller_stream`: on the stream of its arrays itself, if is_in_stream_order(); else beside it.
  Result<std::shared_ptr<GpuWork>> begin(const UserCall& call, double timeout_s,
                                         std::function<void(const Status&)> on_end = {},
                                         bool on_caller_stream = false);
  // Whether it is queued on a stream, where the host does not wait.
  bool is_in_stream_order(const UserCall& call) const;
  Status settle(double timeout_s);  // DeviceCalls; what goes through the host has been waited for
  Status close(double timeout_s);
  void begin_abort(const Status& why);  // does not wait; abort() follows
  void abort(const Status& why);

  Communicator& group() const { return group_; }
  // See DeviceGroups.
  bool can_split() const { return nccl_.is_ok() && nccl_.value()->can_split(); }
  Result<std::shared_ptr<GroupOnGpus>> split(Communicator* child, double timeout_s);

 private:
  DeviceCalls* direct(const UserCall& call) const;  // null: through the host
  Result<std::shared_ptr<StagedCalls>> staged();

  Communicator& group_;
  const std::shared_ptr<const cuda::Driver> driver_;
  const int device_;
  const Backend nccl_, peers_;
  std::mutex mutex_;
  std::shared_ptr<StagedCalls> staged_;  // guarded by mutex_; made for the first such call
};

}  // namespace pc
