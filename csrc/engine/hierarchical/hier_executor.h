// Runs collectives of groups that span several domains, of which at least one has two ranks. It
// also runs the plans of calls that are not hierarchical, because all calls of a group share one
// queue.
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

// The hierarchical algorithm, for records and errors. It has a name but no plan.
const Algorithm& hierarchical(Collective collective);

class HierExecutor final : public CpuExecutor {
 public:
  struct Parts {
    // Not owned; they outlive the executor.
    Host* host = nullptr;
    Transport* transport = nullptr;
    Reactor* reactor = nullptr;
    CoreWatch* core = nullptr;         // is notified of waits in shared memory; may be null
    bool oversubscribed = false;       // the host has more ranks than cores
    std::vector<Rank> domain_of = {};  // by world rank: a number that is unique to the domain of the rank
    LimitsByRanks limits = {};         // see SharedExecutor
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
