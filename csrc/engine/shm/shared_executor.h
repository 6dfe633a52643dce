// Runs collectives of groups whose ranks share memory. A blocking call that is done in a moment is done in launch().
#pragma once

#include <memory>
#include <string>

#include "engine/executor.h"
#include "engine/shm/host.h"
#include "engine/shm/limits.h"

namespace pc::shm {

// What runs a collective here, as a name for records and errors; it has no plan.
const Algorithm& shared_memory(Collective collective);
// How it runs a call of that size (equal parts): for people.
std::string describe(Collective collective, uint64_t nbytes, Rank size, const Limits& limits);

class SharedExecutor final : public Executor {
 public:
  // Host and reactor are not owned; both outlive this. `crowded`: more ranks than cores share the host. `limits`: of groups
  // that have not the usual ones, the same on all ranks. `core` hears of its waits; null, or it outlives this.
  SharedExecutor(Host& host, Reactor& reactor, bool crowded, LimitsByRanks limits = {},
                 CoreWatch* core = nullptr);
  ~SharedExecutor() override;
  SharedExecutor(const SharedExecutor&) = delete;
  SharedExecutor& operator=(const SharedExecutor&) = delete;
  std::string_view name() const override { return "shared memory"; }
  bool supports(const Request& request, Rank size) const override;
  Result<std::unique_ptr<Work>> launch(const Request& request, const Launch& launch) override;
  void cancel(uint32_t group, uint64_t sequence, const Status& why) override;
  void peer_left(Rank world) override;
  void abort(uint32_t group, const Status& why) override;
  void close(uint32_t group) override;
  void abort(const Status& why) noexcept override;

 private:
  struct State;  // shared with the Work it launched, which may outlive it
  std::shared_ptr<State> state_;
};

}  // namespace pc::shm
