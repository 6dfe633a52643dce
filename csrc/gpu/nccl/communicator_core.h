// The implementation of a Communicator, private to communicator*.cc.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/nccl/resources.h"

namespace pc::nccl {

// The state of a Communicator. It may outlive the Communicator, because NCCL, or an abort that does
// not return, may still use it.
struct CommunicatorCore : std::enable_shared_from_this<CommunicatorCore> {
  CommunicatorCore(const Resources& resources_, const Options& options)
      : resources(resources_),
        name(options.name) {}

  const Api& api() const { return *resources.api; }
  Result<std::shared_ptr<void>> enter_thread() const {
    return resources.enter_thread ? resources.enter_thread() : std::shared_ptr<void>();
  }
  bool has_ended() const {
    const State now = state.load();
    return now == State::kDead || now == State::kLeaked;
  }
  // Records a failure, and returns it. Only the first cause is kept. If the communicator is being
  // aborted or has ended, its state does not change.
  Status fail(const Status& why);
  Status why_unusable() const;
  Status why_aborted() const;
  bool begin_abort(const Status& why);

  // The caller of these methods must hold `issue`.
  using Late = std::function<void(ReturnCode answer)>;
  Status aside(std::string_view call, std::function<ReturnCode()> make, Late late,
               const WaitContext& context);
  void abort_child(CommHandle& its);
  Status outcome(std::string_view call, ReturnCode answer, const WaitContext& context);
  Status settle(std::string_view call, ReturnCode code, const WaitContext& context);
  Status refused(std::string_view call, ReturnCode code, const WaitContext& context);
  Status ended(std::string_view call, WaitEnd end);
  Status finalize(const WaitContext& context);
  Status find_place();

  const Resources resources;
  const std::string name;  // NCCL keeps a pointer to it
  Rank rank = 0, size = 1;
  std::atomic<State> state{State::kInit};
  std::atomic<bool> stop{false};          // set by an abort; ends every internal wait
  std::atomic<bool> may_be_stuck{false};  // the holder of `issue` is in a call of NCCL that may wait

  std::mutex issue;  // guards the calls into NCCL for this communicator, and the members below
  // In a child, NCCL may write the handle at any time until the call of the parent has settled. An
  // abort takes the handle even while a stuck thread uses it.
  CommHandle handle = nullptr;
  // How the last aside() ended without a result. left_inside: its context ended before NCCL
  // returned. left_out: the call was not made at all.
  bool left_inside = false, left_out = false;
  std::vector<RedOp> ops;
  // Children for which split or shrink has not settled: NCCL may still write their handles.
  std::vector<std::shared_ptr<CommunicatorCore>> unsettled;

  mutable std::mutex cause_mutex;  // guards the members below
  Status cause;
  // this object, kept alive if it was not closed, because NCCL may still use it
  std::shared_ptr<CommunicatorCore> kept;
};

}  // namespace pc::nccl
