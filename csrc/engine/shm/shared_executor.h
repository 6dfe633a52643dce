// Runs collectives of groups whose ranks share memory. A blocking call that is done in a moment is done in launch().
#pragma once

#include <memory>
#include <string>

#include "engine/cpu_executor.h"
#include "engine/shm/host.h"
#include "engine/shm/limits.h"

namespace pc::shm {

// What runs a collective here, as a name for records and errors; it has no plan.
const Algorithm& shared_memory(Collective collective);
// How it runs a call of that size (equal parts): for people.
std::string describe(Collective collective, uint64_t nbytes, Rank size, const Limits& limits);

class SharedExecutor final : public CpuExecutor {
 public:
  // Host and reactor are not owned; both outlive this. `oversubscribed`: more ranks than cores share the
  // host. `limits`: of groups that have not the usual ones, the same on all ranks. `core` hears of its waits;
  // null, or it outlives this.
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
