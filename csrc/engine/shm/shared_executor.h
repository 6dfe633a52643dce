// Runs collectives of groups in which all ranks share memory. A blocking call that takes only a
// moment is completed in launch().
#pragma once

#include <memory>
#include <string>

#include "engine/cpu_executor.h"
#include "engine/shm/host.h"
#include "engine/shm/limits.h"

namespace pc::shm {

// The algorithm of this executor, for records and errors. It has a name but no plan.
const Algorithm& shared_memory(Collective collective);
// Returns a text for users about how a call of `nbytes` with equal parts runs.
std::string describe(Collective collective, uint64_t nbytes, Rank size, const Limits& limits);

class SharedExecutor final : public CpuExecutor {
 public:
  // Host and reactor are not owned; both outlive this object. `oversubscribed`: the host has more
  // ranks than cores. `limits` holds the limits of the groups that do not use the usual ones, and
  // is the same on all ranks. `core` is notified of waits; it may be null, or else must outlive
  // this object.
  SharedExecutor(Host& host, Reactor& reactor, bool oversubscribed, LimitsByRanks limits = {},
                 CoreWatch* core = nullptr);
  std::string_view name() const override { return "shared memory"; }
  Result<WorkPtr> launch(const Request& request, const Launch& launch) override;

 private:
  struct State;
  explicit SharedExecutor(const std::shared_ptr<State>& state);

  State& state_;
};

}  // namespace pc::shm
