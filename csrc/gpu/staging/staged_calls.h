// Runs calls with arrays on a GPU through the host. The arrays are copied to pinned host memory, a
// normal call of the group runs on that memory, and the results are copied back.
//
//   the array's stream  ...makes x | x to the host |             | back | uses x ...
//   the host                   waits for that      | call on CPU | waits for that if it is blocking
//
// This supports every dtype, operation and message that the CPU supports, even if the arrays of
// other ranks in the same call are on the CPU. Errors have the same effects as in a CPU call: the
// group remains usable. Each array is staged as a whole, in memory that is kept for the next call.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "comm/user_call.h"
#include "gpu/cuda/event.h"
#include "gpu/cuda/pinned_pool.h"
#include "gpu/cuda/stream.h"
#include "gpu/staging/gpu_work.h"

namespace pc {

// Thread-safety: all methods. The group must outlive it.
class StagedCalls : public std::enable_shared_from_this<StagedCalls> {
 public:
  // `wait_limit_s` limits the time for copying a result to the GPU, after the call has succeeded on
  // all ranks.
  static Result<std::shared_ptr<StagedCalls>> create(Communicator& group,
                                                     const std::shared_ptr<const cuda::Driver>& driver,
                                                     int device, double wait_limit_s);
  ~StagedCalls();  // memory that the GPU still uses is leaked
  StagedCalls(const StagedCalls&) = delete;
  StagedCalls& operator=(const StagedCalls&) = delete;

  // Runs the whole call in this thread, and returns when the result is on the GPU.
  Status run(const UserCall& call, double timeout_s);
  // Returns once the arrays have been copied to the host. `on_end` is called once, in the watcher
  // thread, when the call has ended; it must not wait.
  Result<std::shared_ptr<GpuWork>> begin(const UserCall& call, double timeout_s,
                                         std::function<void(const Status&)> on_end = {});
  // Allocates the pinned memory and the events that a call such as `call` needs, and keeps them for
  // the next call.
  Status reserve(const UserCall& call);
  // Waits for the calls that have begun. Returns the first failure of a call that had no outcome
  // when close() was called.
  Status close(double timeout_s);

 private:
  class Call;
  struct Staging;
  StagedCalls(Communicator& group, cuda::Context context, cuda::Stream stream, double wait_limit_s);
  Status check(UserCall& call) const;
  Result<Staging> to_host(const UserCall& call, cuda::CUstream stream, const WaitContext& context);
  Status queue_copies_out(const UserCall& call, Staging& staging, cuda::CUstream stream);
  Result<cuda::CUevent> queue_copies_back(Staging& staging, cuda::CUstream stream);
  Deadline wait_limit() const { return Deadline::after(wait_limit_s_); }
  Status until_back(const UserCall& call, Deadline deadline, const std::function<Result<bool>()>& reached);
  Status settled(const Result<WaitEnd>& end, const UserCall& call, const char* what);
  Status start_watching();  // requires mutex_
  void watch();
  bool look_at_calls();

  Communicator& group_;
  const double wait_limit_s_;
  const cuda::Context context_;
  const cuda::Stream stream_;  // for begin(); separate from the arrays' streams
  cuda::EventPool events_;
  cuda::PinnedPool pinned_;

  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Call>> running_;
  bool news_ = false;  // the watcher must look at the calls, since one has begun or has ended on the CPU
  bool stopping_ = false;
  std::thread watcher_;  // started by the first begin()
};

}  // namespace pc
