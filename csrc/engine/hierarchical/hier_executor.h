// Runs collectives of groups on several domains, of which one at least has two ranks. What is not
// hierarchical runs plans here too, for the calls of a group are made in one queue.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/cpu_executor.h"
#include "engine/hierarchical/group_table.h"
#include "engine/hierarchical/inter_domain_group.h"
#include "engine/shm/host.h"
#include "engine/shm/limits.h"
#include "transport/reactor.h"

namespace pc::shm {

// What is hierarchical, as a name for records and errors; it has no plan.
const Algorithm& hierarchical(Collective collective);

class HierExecutor final : public CpuExecutor {
 public:
  struct Parts {
    // Not owned; they outlive this.
    Host* host = nullptr;
    Transport* transport = nullptr;
    Reactor* reactor = nullptr;
    CoreWatch* core = nullptr;         // hears of waits in shared memory; may be null
    bool oversubscribed = false;       // more ranks than cores share the host
    std::vector<Rank> domain_of = {};  // by world rank: any number that only its domain has
    LimitsByRanks limits = {};         // as SharedExecutor's
    ChoosePlan choose = {};
  };
  explicit HierExecutor(Parts parts);
  std::string_view name() const override { return "hierarchical"; }
  Result<WorkPtr> launch(const Request& request, const Launch& launch) override;

 private:
  struct State;
  explicit HierExecutor(const std::shared_ptr<State>& state);

  State& state_;
};

}  // namespace pc::shm
