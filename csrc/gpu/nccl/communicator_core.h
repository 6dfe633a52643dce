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

// State that NCCL, and an abort that does not return, may still use after the Communicator is
// destroyed.
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
  // Records a failure. The first cause is kept. The state of a communicator that is being ended
  // does not change.
  Status fail(const Status& why);
  Status why_unusable() const;
  Status why_aborted() const;
  bool begin_abort(const Status& why);

  // These require the issue mutex:
  using Late = std::function<void(ReturnCode answer)>;
  Status aside(std::string_view call, std::function<ReturnCode()> make, Late late,
               const WaitContext& context);
  void abort_newborn(CommHandle& its);
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
  std::atomic<bool> may_be_stuck{false};  // the holder of the issue mutex is in a call of NCCL that may wait

  std::mutex issue;  // guards the calls into NCCL for this communicator, and the members below
  // NCCL may write a child's handle at any time until the parent has settled. An abort takes the
  // handle from a stuck thread.
  CommHandle handle = nullptr;
  // Outcome of the last aside(): its context ended before NCCL returned (left_inside); the call was
  // not made at all (left_out).
  bool left_inside = false, left_out = false;
  std::vector<RedOp> ops;
  // Children that did not settle: NCCL may still write their handles.
  std::vector<std::shared_ptr<CommunicatorCore>> unsettled;

  mutable std::mutex cause_mutex;  // guards the members below
  Status cause;
  std::shared_ptr<CommunicatorCore> kept;  // itself if it was not closed, because NCCL still uses it
};

}  // namespace pc::nccl
