// Runs one group's calls with arrays on GPUs, concurrently with the group's other calls and under
// the same rules. Every call is compared with the other ranks' calls while NCCL runs it. A failure
// on any rank ends all calls.
//
//   launch()   checks the call
//              begins the comparison, with a small message to the other ranks
//              queues the call on the GPU; the thread may get stuck here, inside NCCL
//
// Two threads run from join() on. The poller queries the driver and NCCL for the progress of calls,
// and completes the calls that have ended. The watcher checks for mismatches, passed deadlines,
// dead ranks and Ctrl-C. The watcher never calls the driver, because a driver call may block while
// a thread is stuck inside NCCL. When either thread finds the first failure, the watcher ends all
// calls with it, and then aborts the communicator. Every later call returns that failure.
#pragma once

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "comm/runtime.h"
#include "gpu/agreed_calls.h"
#include "gpu/cuda/context.h"
#include "gpu/cuda/device_executor.h"
#include "gpu/device_path.h"
#include "gpu/fifo_lock.h"
#include "gpu/ipc/ipc_join.h"
#include "gpu/nccl/communicator.h"
#include "gpu/staging/gpu_work.h"

namespace pc {

// Thread-safety: all methods. The group must outlive it.
class DeviceCalls : public std::enable_shared_from_this<DeviceCalls> {
 public:
  // Returns true if `thread` has received Ctrl-C after `since` and must stop waiting. The watcher
  // calls it while `thread` may be stuck inside NCCL, where the thread cannot check for Ctrl-C
  // itself. It must not block. May be empty.
  using Interrupted = std::function<bool(pthread_t thread, TimePoint since)>;
  // This rank's resources. If a resource is missing, why_not gives the reason, and the other
  // members may be null.
  struct Resources {
    std::shared_ptr<const cuda::Driver> driver;
    std::shared_ptr<const nccl::Api> api;
    Status why_not;
    int device = 0;
    // NCCL_HOSTID, if it is set: the host on which NCCL considers this process to run. NCCL rejects
    // two ranks that share a GPU of one host.
    std::string host_id = {};
    IpcResources peers = {};  // for join_ipc(), which sets the members driver, device, log and abandoned
    // Receives the resources that a GPU may still use when a group with a failed call is destroyed.
    std::shared_ptr<Abandoned> abandoned = std::make_shared<Abandoned>();
    nccl::Clock* clock = nullptr;  // must outlive this object
    Logger log = Logger();
    bool strict = false;  // if true, a call is queued only after all ranks have made it
    Interrupted interrupted = {};
    // Provides the semaphores on which streams wait until all ranks have made a call. If it is
    // null, streams do not wait.
    std::shared_ptr<cuda::SemaphorePool> semaphores = {};
    // How long a group that closes or aborts waits for the poller to end. After that it detaches
    // the poller, which may be blocked in a driver that never responds.
    std::chrono::milliseconds wait_limit{5'000};
  };
  // Joins the ranks by NCCL. All members call it like any collective. Returns kUnsupported on all
  // of them if NCCL cannot be used; the group remains usable for arrays on the CPU. If one rank
  // fails after the others have begun to join, the group ends.
  static Result<std::shared_ptr<DeviceCalls>> join(Communicator& group, const Resources& resources,
                                                   double timeout_s);
  // As join(), but for ranks that access each other's arrays directly; see ipc_join.h.
  static Result<std::shared_ptr<DeviceCalls>> join_ipc(Communicator& group, Runtime& runtime,
                                                       const Resources& resources, double timeout_s);
  ~DeviceCalls();  // close() or abort() must precede it
  DeviceCalls(const DeviceCalls&) = delete;
  DeviceCalls& operator=(const DeviceCalls&) = delete;

  std::string_view name() const { return executor_->name(); }  // "nccl" or "peers"
  bool is_in_stream_order() const { return executor_->in_stream_order(); }
  // Returns OK if calls such as `request` are supported, otherwise kUnsupported with the reason.
  // The result is the same on all ranks.
  Status can(const Request& request) const { return executor_->can(request); }
  // Queues the call on the GPU. `on_end` is called once when the call has ended, in a thread of
  // this class; it must not block. It is not called if launch() fails, nor for calls captured into
  // a CUDA graph.
  Result<std::shared_ptr<GpuWork>> launch(const cuda::DeviceCall& call, double timeout_s,
                                          std::function<void(const Status&)> on_end = {});
  // Splits the communicator of this group, and returns the DeviceCalls of the new group `child`.
  // All members call it after the same calls, and it waits until these calls have ended. A member
  // that belongs to no new group passes null. Returns null if `child` is null or has one rank,
  // because a single rank does not need NCCL. If it fails on one rank, this group ends on all
  // ranks, and so does that rank's `child`.
  Result<std::shared_ptr<DeviceCalls>> split(Communicator* child, double timeout_s);
  // returns false after a failure, and in a signal handler that interrupts a call of this group
  bool can_split() const;
  // If the arrays have a stream and is_in_stream_order() is true, returns once the call is queued
  // on that stream. Otherwise returns once the call has ended.
  Status run(const cuda::DeviceCall& call, double timeout_s);
  // For measurements: waits until every call so far has ended and is no longer polled, so that
  // these calls do not share the host and the driver with the next operation. Ctrl-C does not end
  // the wait.
  Status settle(double timeout_s);
  // All members call it after the same calls. It may return an earlier failure that no call has
  // returned.
  Status close(double timeout_s);
  void begin_abort(const Status& why) { fail(why, false); }  // does not wait; abort() must follow
  void abort(const Status& why);

 private:
  DeviceCalls(Communicator& group, const Resources& resources,
              std::unique_ptr<cuda::DeviceExecutor> executor);
  class Call;
  Status check(Request& request) const;
  std::optional<Status> compared(const Call& call, TimePoint until, AsyncWork::Part part) const;
  Status begin_comparison(cuda::DeviceCall& call, Call& started);
  Status not_made(const Status& why);
  Status all_have_made(const Call& call);
  Status queue(const cuda::DeviceCall& call, const std::shared_ptr<Call>& started,
               std::function<void(const Status&)> on_end);
  Status failure() const;
  Status close_failed(const Status& failed);
  Status first_failure();  // returns failure_, and records that a caller has received it
  void fail(const Status& why, bool report);
  // How long a failed call waits for the abort before it returns its error. The abort itself gives
  // up after 10 s. kAbort applies if the GPU could otherwise still write to arrays that have been
  // returned to the caller. Otherwise kShortAbort applies, because the abort is likely to end soon.
  static constexpr std::chrono::milliseconds kAbort{15'000}, kShortAbort{50};
  bool wait_for_abort(std::chrono::milliseconds wait_limit);
  std::vector<std::shared_ptr<Call>> running() const;
  void poll();
  void watch();
  void ask_threads_to_stop();
  void stop_threads();
  void poll_calls();
  void look_for_failures();
  bool driver_is_silent();
  std::optional<Status> end_on_gpu(const Call& call, bool is_well, TimePoint at) const;
  std::optional<std::pair<Status, bool>> failure_of(const Call& call, const std::optional<Status>& on_gpu,
                                                    TimePoint at) const;
  std::optional<std::pair<Status, bool>> failure_outside_gpu(const Call& call, bool is_silent) const;
  void take_out(const std::vector<std::shared_ptr<Call>>& ended);
  void end_all(std::unique_lock<std::mutex>& lock);

  Communicator& group_;
  const int device_;
  const bool strict_;
  nccl::Clock& clock_;
  const Interrupted interrupted_;
  const std::chrono::milliseconds wait_limit_;
  const Logger log_;
  const std::unique_ptr<cuda::DeviceExecutor> executor_;
  const std::shared_ptr<AgreedCalls> agreed_;         // shared with the comparisons
  FifoLock issue_order_{"queues a call on the GPU"};  // calls are compared and queued in the same order

  mutable std::mutex mutex_;  // guards the members below; the driver and NCCL are not called while it is held
  std::condition_variable poll_now_;   // wakes the poller
  std::condition_variable watch_now_;  // wakes the watcher
  std::condition_variable settled_;    // for threads that wait for the poller, the watcher or the abort
  int settling_ = 0;                   // number of threads that wait in settle()
  std::deque<std::shared_ptr<Call>> running_;
  Status failure_;
  bool raised_ = false;                      // a caller has received failure_
  bool aborting_ = false, aborted_ = false;  // whether the abort has begun, and whether it has ended
  bool stopping_ = false;
  bool watcher_sleeps_ = false, watcher_ended_ = false, poller_ended_ = false;
  std::chrono::milliseconds polls_again_in_{0};  // how long the poller sleeps; 0 while it queries the driver
  uint64_t question_ = 0;                        // number of queries that the poller has begun
  uint64_t overdue_ = 0;                         // value of question_ in the watcher's last round
  // number of successive rounds of the watcher in which that query was still in progress
  int overdue_rounds_ = 0;
  std::shared_ptr<DeviceCalls> kept_;  // this object, kept alive for a detached poller

  std::mutex stop_mutex_;         // held while the threads below are stopped
  std::thread watcher_, poller_;  // set in the constructor
};

}  // namespace pc
