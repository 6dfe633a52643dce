// Runs collectives of ranks that access each other's arrays on GPUs. It serves ranks that share a
// GPU, which NCCL rejects. In each rank, one thread runs the calls of a group in their order:
//
//   wait until this rank's arrays have been made
//   exchange cards: the locations of all arrays          an allgather
//   wait until all ranks have entered the call           a barrier
//   run this rank's steps, if it is a worker             kernels or copies (ipc_steps.h)
//   wait until all ranks have finished                   a barrier
//
// Cards and barriers are calls of a separate internal group of the same ranks, so that the user's
// own calls continue meanwhile. If the other ranks cannot access an array of a rank, that rank uses
// scratch memory instead (ipc_scratch.h). If it cannot allocate scratch memory, its card reports
// that, and all ranks run the call through the host. No rank waits for another on the GPU, so a
// dead rank leaves no kernel that spins. The host waits for the end of each call; see docs/gpu.md.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "comm/communicator.h"
#include "gpu/cuda/abandoned.h"
#include "gpu/cuda/device_executor.h"
#include "gpu/cuda/device_kernels.h"
#include "gpu/ipc/ipc_memory.h"
#include "gpu/ipc/ipc_scratch.h"
#include "gpu/ipc/ipc_steps.h"
#include "gpu/staging/staged_calls.h"

namespace pc {

// Thread-safety: all methods. The user's group and control_group must outlive it.
class IpcExecutor final : public cuda::DeviceExecutor {
 public:
  struct Parts {
    Communicator* control_group;  // a group of the same ranks, used only by this object
    IpcMemory memory;
    cuda::DeviceKernels device_kernels;
    Status can_reduce;          // OK if every rank can reduce on its GPU
    std::vector<Rank> workers;  // workers[r] is the rank that moves the arrays of rank r
    std::shared_ptr<Abandoned> abandoned;
    Logger log;
  };
  static Result<std::unique_ptr<cuda::DeviceExecutor>> create(const cuda::Context& context, Parts parts);
  ~IpcExecutor() override;

  std::string_view name() const override { return "peers"; }
  bool in_stream_order() const override { return false; }
  double grace_s() const override;
  Status can(const Request& request) const override;
  Status ready(cuda::DeviceCall& call) override;
  Result<std::shared_ptr<cuda::DeviceWork>> launch(const cuda::DeviceCall& call,
                                                   const WaitContext& context) override;
  Status poll_all() override { return Status::ok(); }  // every failure is returned by the call that it ends
  std::size_t running() const override;
  void abort(const Status& why, uint32_t last) override;
  Status close(const WaitContext& context) override;

 private:
  class Work;
  struct Card;
  struct Gpu;
  IpcExecutor(const cuda::Context& context, Parts parts, std::unique_ptr<Gpu> gpu);
  void run();
  Status make(Work& work);
  Status move(const Request& request, const std::vector<Card>& cards, const WaitContext& context);
  Status queue(const WaitContext& context, const std::function<Status(cuda::CUstream)>& what);
  Status until_reached(cuda::CUevent event, const WaitContext& context, const char* what);
  Result<std::vector<Card>> exchange(const Card& mine, Deadline deadline);
  Status barrier(const char* label, Deadline deadline);
  Card card_of(const Request& request, const Request& within_reach);
  Result<std::string> lack_on_host(const Work& work, Deadline deadline);
  UserCall staged(const Work& work) const;
  Status stage(const Work& work);

  const cuda::Context context_;
  const Status can_reduce_;
  const std::vector<Rank> workers_;
  Communicator& control_group_;
  const std::shared_ptr<Abandoned> abandoned_;
  const Logger log_;
  std::unique_ptr<Gpu> gpu_;  // used only by thread_, except its events
  bool is_busy_ = false;      // work that this rank has queued may not have ended; used only by thread_
  bool in_use_ = false;       // another rank may still use the arrays of a call; used only by thread_
  bool warned_ = false;       // used only by thread_

  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Work>> queue_;  // the first call is being run
  Status failure_;                           // every later call ends with this failure
  bool stopping_ = false;
  std::thread thread_;  // set by create()
};

}  // namespace pc
