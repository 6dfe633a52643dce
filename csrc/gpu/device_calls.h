// Calls of arrays on GPUs, in one group: beside the group's own calls, under the same rules. Every call is compared with the
// other ranks' while NCCL runs it; what goes wrong on any rank ends all.
//
//   launch()   checks -> comparison begins (a small message to the others) -> queued on the GPU, where its thread may be stuck
// Two threads exist from join() on. The poller asks the driver and NCCL how calls go on, and ends those that are done. The watcher
// looks at the comparison's end, the call's deadline, the death of a rank and Ctrl-C. It never asks the driver, whose answer may
// not come while a thread is stuck inside NCCL. The first failure that either of them finds is what every later call raises: the
// watcher ends all calls with it, and then aborts the communicator.
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
  // Whether Ctrl-C has come for that thread since then, and ends what it waits for. The watcher asks it while the thread may be
  // stuck inside NCCL, where it does not hear it; it shall not wait. May be empty.
  using Interrupted = std::function<bool(pthread_t thread, TimePoint since)>;
  // This rank's means. Of what it lacks: why_not, and the rest is null.
  struct Resources {
    std::shared_ptr<const cuda::Driver> driver;
    std::shared_ptr<const nccl::Api> api;
    Status why_not;
    int device = 0;
    // Which host NCCL takes this process to be on (NCCL_HOSTID), where it is told: it refuses ranks that share a GPU of one host.
    std::string host_id = {};
    IpcResources peers = {};  // of join_ipc(), but for driver, device, log and abandoned
    // Takes what a GPU may still use when a group of a failed call goes.
    std::shared_ptr<Abandoned> abandoned = std::make_shared<Abandoned>();
    nccl::Clock* clock = nullptr;  // outlives it
    Logger log = Logger();
    bool strict = false;  // a call is queued only when all ranks have made it
    Interrupted interrupted = {};
    // Of what streams wait for until all ranks have made a call. Null: they go past calls at once.
    std::shared_ptr<cuda::SemaphorePool> semaphores = {};
    // How long the poller may take to end before it is left behind: it may wait for a driver that never answers.
    std::chrono::milliseconds wait_limit{5'000};
  };
  // All members call it, as they would call any collective. kUnsupported, on all of them: there is no way; the group goes on
  // with arrays of the CPU. If joining fails in the middle, on one rank, the group ends.
  static Result<std::shared_ptr<DeviceCalls>> join(Communicator& group, const Resources& resources,
                                                   double timeout_s);
  // Likewise for ranks that reach each other's arrays, by ipc_join.h.
  static Result<std::shared_ptr<DeviceCalls>> join_ipc(Communicator& group, Runtime& runtime,
                                                       const Resources& resources, double timeout_s);
  ~DeviceCalls();  // close() or abort() comes first
  DeviceCalls(const DeviceCalls&) = delete;
  DeviceCalls& operator=(const DeviceCalls&) = delete;

  std::string_view name() const { return executor_->name(); }  // "nccl" or "peers"
  bool is_in_stream_order() const { return executor_->in_stream_order(); }
  // OK, or kUnsupported and why not: a function of what all ranks know.
  Status can(const Request& request) const { return executor_->can(request); }
  // `on_end`: once, when it has ended, in a thread of this class; shall not wait. Not if this fails, nor for what goes into a
  // CUDA graph.
  Result<std::shared_ptr<GpuWork>> launch(const cuda::DeviceCall& call, double timeout_s,
                                          std::function<void(const Status&)> on_end = {});
  // Calls among the ranks of `child`, whose communicator comes from this one's. All members call it, after the same calls, for which
  // it waits; with null who is in none. Null: no child, or one of one rank, which has nothing to gain. If it fails on one rank,
  // this group ends on all, and that rank's child.
  Result<std::shared_ptr<DeviceCalls>> split(Communicator* child, double timeout_s);
  bool can_split() const;  // as far as this rank knows: nothing has gone wrong
  // Returns when it is queued on the stream of its arrays if that is enough; else when it has ended.
  Status run(const cuda::DeviceCall& call, double timeout_s);
  // Until every call so far has ended and nothing looks after it any more, so that the next thing to be done has the host and
  // the driver for itself. For measurements; hears no Ctrl-C.
  Status settle(double timeout_s);
  // All members, after the same calls. Errors: also what went wrong earlier and no call has raised.
  Status close(double timeout_s);
  void begin_abort(const Status& why) { fail(why, false); }  // does not wait; abort() follows
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
  Status first_failure();  // the same, which is raised now
  void fail(const Status& why, bool report);
  // How long an error may wait for the abort, which gives up after 10 s: where something else could write what goes back to its
  // owner, and where it is only likely to be over soon.
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
  const std::shared_ptr<AgreedCalls> agreed_;         // with the comparisons
  FifoLock issue_order_{"queues a call on the GPU"};  // calls are compared and queued in one order

  mutable std::mutex mutex_;           // guards what follows; nobody asks the driver or NCCL with it
  std::condition_variable poll_now_;   // wakes the poller
  std::condition_variable watch_now_;  // wakes the watcher
  std::condition_variable settled_;    // the poller has nothing to look at, or the abort is over
  int settling_ = 0;                   // how many threads wait for the first of these
  std::deque<std::shared_ptr<Call>> running_;
  Status failure_;
  bool raised_ = false;                      // failure_, by some call
  bool aborting_ = false, aborted_ = false;  // because of it
  bool stopping_ = false;
  bool watcher_sleeps_ = false, watcher_ended_ = false, poller_ended_ = false;
  std::chrono::milliseconds polls_again_in_{0};  // the poller, which sleeps until then; 0: it asks
  uint64_t question_ = 0;                        // how often it has asked, with this time
  uint64_t overdue_ = 0;                         // the question that it was at in the watcher's last rounds
  int overdue_rounds_ = 0;                       // how many these are
  std::shared_ptr<DeviceCalls> kept_;            // itself, for a thread that was left behind

  std::mutex stop_mutex_;         // guards the end of what follows
  std::thread watcher_, poller_;  // set once
};

}  // namespace pc
