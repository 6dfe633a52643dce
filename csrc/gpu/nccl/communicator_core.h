// The inside of a Communicator, private to communicator*.cc.
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

// What an abort that does not come back, and NCCL itself, may still look at after the Communicator is gone.
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
  // The first cause stays. Of a communicator that is being ended the state stays too.
  Status fail(const Status& why);
  Status why_unusable() const;
  Status why_aborted() const;
  bool begin_abort(const Status& why);

  // Under the issue mutex:
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
  std::atomic<bool> stop{false};  // set by an abort: every wait inside ends
  std::atomic<bool> may_be_stuck{
      false};  // the thread that holds the issue mutex is in a call of NCCL that may wait

  std::mutex issue;  // guards the calls into NCCL for this communicator, and what follows
  // NCCL writes it, of a child at any time until the parent has settled. An abort takes it from a thread that is stuck.
  CommHandle handle = nullptr;
  // What has become of the last call that was to be made aside: its context ended before NCCL answered; it was not made at all.
  bool left_inside = false, left_out = false;
  std::vector<RedOp> ops;
  // Whose handle NCCL may still write, because making them did not settle.
  std::vector<std::shared_ptr<CommunicatorCore>> unsettled;

  mutable std::mutex cause_mutex;  // guards what follows
  Status cause;
  std::shared_ptr<CommunicatorCore> kept;  // itself, if it was not closed: NCCL goes on using it
};

}  // namespace pc::nccl
