// Calls of arrays on a GPU that the CPU makes: the arrays go to pinned memory of the host, from there into a call of the group
// like any other, and back.
//
//   the array's stream   ...makes x | x to the host |                      | back | uses x ...
//   the host                      waits for that    | the call, on the CPU |  waits for that, if the call is a blocking one
//
// What the CPU can do can be done so: every dtype, operation and message, with ranks whose arrays lie on the CPU in the same call.
// What goes wrong goes wrong as on the CPU: the group goes on. Each array is staged whole, in memory that is kept for the next.
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
  // `wait_limit_s`: for the copy of a result to the GPU, when the call has ended well on all ranks.
  static Result<std::shared_ptr<StagedCalls>> create(Communicator& group,
                                                     const std::shared_ptr<const cuda::Driver>& driver,
                                                     int device, double wait_limit_s);
  ~StagedCalls();  // what the GPU still uses is leaked
  StagedCalls(const StagedCalls&) = delete;
  StagedCalls& operator=(const StagedCalls&) = delete;

  // In this thread, from end to end.
  Status run(const UserCall& call, double timeout_s);
  // Returns when the arrays have been read. `on_end`: once, when it has ended, in the watcher; shall not wait.
  Result<std::shared_ptr<GpuWork>> begin(const UserCall& call, double timeout_s,
                                         std::function<void(const Status&)> on_end = {});
  // Takes the pinned memory and the events that such a call needs, and keeps them for the next call.
  Status reserve(const UserCall& call);
  // Waits for what has been begun.
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
  Status start_watching();  // mutex_ held
  void watch();
  bool look_at_calls();

  Communicator& group_;
  const double wait_limit_s_;
  const cuda::Context context_;
  const cuda::Stream stream_;  // beside the arrays' own
  cuda::EventPool events_;
  cuda::PinnedPool pinned_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Call>> running_;
  bool news_ = false;  // a call has ended on the CPU
  bool stopping_ = false;
  std::thread watcher_;  // from the first begin() on
};

}  // namespace pc
