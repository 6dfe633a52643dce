// Calls of arrays on GPUs in one group, concurrent with the group's own calls and under the same
// rules. Every call is compared with the other ranks' calls while NCCL runs it; a failure on any
// rank ends all calls.
//
//   launch()   checks -> comparison begins (a small message to the other ranks)
//                     -> queued on the GPU, where its thread may be stuck
//
// Two threads exist from join() on. The poller queries the progress of calls from the driver and
// NCCL, and completes those that have ended. The watcher checks the result of the comparison, the
// call's deadline, the death of a rank and Ctrl-C. It never calls the driver, which may block while
// a thread is stuck inside NCCL. The first failure that either of them finds is returned by every
// later call: the watcher ends all calls with it, and then aborts the communicator.
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
  // Returns whether that thread has received Ctrl-C since then and must stop waiting. The watcher
  // calls it while the thread may be stuck inside NCCL, where the thread cannot detect it itself.
  // It must not block. May be empty.
  using Interrupted = std::function<bool(pthread_t thread, TimePoint since)>;
  // This rank's resources. If one is missing, why_not gives the reason, and the other members may
  // be null.
  struct Resources {
    std::shared_ptr<const cuda::Driver> driver;
    std::shared_ptr<const nccl::Api> api;
    Status why_not;
    int device = 0;
    // The host on which NCCL considers this process to be (NCCL_HOSTID), if set: NCCL refuses ranks
    // that share a GPU of one host.
    std::string host_id = {};
    IpcResources peers = {};  // for join_ipc(), which sets driver, device, log and abandoned
    // Receives what a GPU may still use when a group with a failed call is destroyed.
    std::shared_ptr<Abandoned> abandoned = std::make_shared<Abandoned>();
    nccl::Clock* clock = nullptr;  // must outlive this object
    Logger log = Logger();
    bool strict = false;  // a call is queued only after all ranks have made it
    Interrupted interrupted = {};
    // Provides the semaphores on which streams wait until all ranks have made a call. Null: streams
    // pass calls at once.
    std::shared_ptr<cuda::SemaphorePool> semaphores = {};
    // How long the poller may take to end before it is detached: it may wait for a driver that
    // never responds.
    std::chrono::milliseconds wait_limit{5'000};
  };
  // All members call it like any collective. Returns kUnsupported on all of them if NCCL cannot be
  // used; the group remains usable for arrays of the CPU. If joining fails in the middle on one
  // rank, the group ends.
  static Result<std::shared_ptr<DeviceCalls>> join(Communicator& group, const Resources& resources,
                                                   double timeout_s);
  // The same for ranks that access each other's arrays, by ipc_join.h.
  static Result<std::shared_ptr<DeviceCalls>> join_ipc(Communicator& group, Runtime& runtime,
                                                       const Resources& resources, double timeout_s);
  ~DeviceCalls();  // close() or abort() must precede it
  DeviceCalls(const DeviceCalls&) = delete;
  DeviceCalls& operator=(const DeviceCalls&) = delete;

  std::string_view name() const { return executor_->name(); }  // "nccl" or "peers"
  bool is_in_stream_order() const { return executor_->in_stream_order(); }
  // Returns OK, or kUnsupported with the reason. The result depends only on what all ranks know.
  Status can(const Request& request) const { return executor_->can(request); }
  // `on_end` is called once when the call has ended, in a thread of this class; it must not block.
  // It is not called if launch() fails, nor for calls captured into a CUDA graph.
  Result<std::shared_ptr<GpuWork>> launch(const cuda::DeviceCall& call, double timeout_s,
                                          std::function<void(const Status&)> on_end = {});
  // Creates the calls among the ranks of `child`; its communicator is split from this one's. All
  // members call it after the same calls, and it waits for those; a member that is in no child
  // passes null. Returns null without a child, or for a child of one rank, for which NCCL gains
  // nothing. If it fails on one rank, this group ends on all ranks, and so does that rank's child.
  Result<std::shared_ptr<DeviceCalls>> split(Communicator* child, double timeout_s);
  bool can_split() const;  // as far as this rank knows: nothing has failed
  // Returns when the call is queued on the stream of its arrays if that suffices; otherwise when it
  // has ended.
  Status run(const cuda::DeviceCall& call, double timeout_s);
  // Waits until every call so far has ended and is no longer polled, so that the next operation has
  // the host and the driver to itself. For measurements; Ctrl-C does not end it.
  Status settle(double timeout_s);
  // All members call it after the same calls. The error may be an earlier failure that no call has
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
  Status first_failure();  // failure_, marked as returned to a caller
  void fail(const Status& why, bool report);
  // How long an error may wait for the abort, which gives up after 10 s: kAbort if arrays returned
  // to their owner could otherwise still be written, kShortAbort if the abort is merely likely to
  // end soon.
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
  std::condition_variable settled_;    // the poller is idle, or the abort has ended
  int settling_ = 0;                   // number of threads that wait for an idle poller
  std::deque<std::shared_ptr<Call>> running_;
  Status failure_;
  bool raised_ = false;                      // some call has returned failure_
  bool aborting_ = false, aborted_ = false;  // the abort because of failure_
  bool stopping_ = false;
  bool watcher_sleeps_ = false, watcher_ended_ = false, poller_ended_ = false;
  std::chrono::milliseconds polls_again_in_{0};  // how long the poller sleeps; 0: it queries the driver
  uint64_t question_ = 0;                        // number of the poller's query, the current one included
  uint64_t overdue_ = 0;               // the query that was in progress in the watcher's last rounds
  int overdue_rounds_ = 0;             // number of these rounds
  std::shared_ptr<DeviceCalls> kept_;  // itself, for a detached thread

  std::mutex stop_mutex_;         // guards the shutdown of the threads below
  std::thread watcher_, poller_;  // set once
};

}  // namespace pc
