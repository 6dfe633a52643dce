// Runs calls with arrays on a GPU by NCCL. A call runs after the work that is queued on the
// caller's stream before it. A stream for which precede() is called waits for the call.
//
//   the caller's stream     ...makes x | E_in           waits for E_out | uses x ...
//   the executor's stream               waits for E_in | NCCL | E_out
//
// A stream does not pass the call before all ranks are known to have made it: after E_out it waits
// for a semaphore. If some rank has not made the call, NCCL is aborted, and a stream of the
// executor fills the result with NaN before it signals the semaphore.
//
// A call on the caller's stream is queued entirely on that stream; only E_out is recorded, so that
// the host can query it. A stream that is being captured into a graph gets the same operations.
// Their events are never queried, since the operations run when the graph is launched.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "gpu/cuda/abandoned.h"
#include "gpu/cuda/context.h"
#include "gpu/cuda/device_executor.h"
#include "gpu/cuda/event.h"
#include "gpu/cuda/memory.h"
#include "gpu/cuda/stream.h"
#include "gpu/cuda/timeline_semaphore.h"
#include "gpu/nccl/communicator.h"

namespace pc::nccl {

// One rank's executor of one group. Thread-safety: all methods.
class Executor final : public cuda::DeviceExecutor {
 public:
  struct Gpu {  // resources of this rank
    cuda::Context context;
    cuda::Stream stream, graph_stream;  // graph_stream is for calls that are captured into graphs
    cuda::Stream refusing_stream;       // fills results with NaN
    std::shared_ptr<cuda::SemaphorePool> semaphores;  // for executors split from this one; may be null
    // null: streams do not wait until all ranks have made a call
    std::shared_ptr<cuda::TimelineSemaphore> agreed;
    std::unique_ptr<cuda::DeviceMemory> word = {};  // 4 bytes for barriers, allocated for the first one
    static Result<Gpu> take(const cuda::Context& context, std::shared_ptr<cuda::SemaphorePool> semaphores);
  };
  // `abandoned` receives the resources of calls that may still run when this executor is destroyed.
  Executor(Gpu gpu, std::unique_ptr<Communicator> communicator, std::shared_ptr<Abandoned> abandoned);
  ~Executor() override;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  std::string_view name() const override { return "nccl"; }
  Status can(const Request& request) const override;
  Status ready(cuda::DeviceCall& call) override;
  Result<std::shared_ptr<cuda::DeviceWork>> launch(const cuda::DeviceCall& call,
                                                   const WaitContext& context) override;
  std::shared_ptr<cuda::TimelineSemaphore> agreed() const override;
  Status poll_all() override;
  void abort(const Status& why, uint32_t last) override;
  Status close(const WaitContext& context) override;
  Result<std::unique_ptr<cuda::DeviceExecutor>> split(int color, int key,
                                                      const WaitContext& context) override;

  std::size_t running() const override;

 private:
  struct Shared;
  class Work;
  struct Refusal;
  void let_go_of_ended();
  void refuse(const std::shared_ptr<Refusal>& refusal, uint32_t last, const Status& why);
  Status wait_for_all(const WaitContext& context);
  Result<void*> barrier_word(bool is_captured);
  Status queue(const cuda::DeviceCall& call, Work& work, const WaitContext& context);

  const std::shared_ptr<Shared> shared_;  // shared with the Work objects
  std::unique_ptr<Gpu> gpu_;
  const std::shared_ptr<Abandoned> abandoned_;
  std::shared_ptr<Refusal> refusal_;  // what refusing_ runs; both are set by an abort
  std::thread refusing_;
};

}  // namespace pc::nccl
