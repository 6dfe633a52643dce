// Runs collectives of groups on several islands, of which one at least has two ranks. What does not go by islands runs plans
// here too, for the calls of a group are made in one line.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/executor.h"
#include "engine/hierarchical/column.h"
#include "engine/hierarchical/group_table.h"
#include "engine/shm/host.h"
#include "engine/shm/limits.h"
#include "transport/reactor.h"

namespace pc::shm {

// What goes by islands, as a name for records and errors; it has no plan.
const Algorithm& by_islands(Collective collective);

class HierExecutor final : public Executor {
 public:
  struct Parts {
    // Not owned; they outlive this.
    Host* host = nullptr;
    Transport* transport = nullptr;
    Reactor* reactor = nullptr;
    CoreWatch* core = nullptr;         // hears of waits in shared memory; may be null
    bool crowded = false;              // more ranks than cores share the host
    std::vector<Rank> island_of = {};  // by world rank: any number that only its island has
    LimitsByRanks limits = {};         // as SharedExecutor's
    ChoosePlan choose = {};
  };
  explicit HierExecutor(Parts parts);
  ~HierExecutor() override;
  HierExecutor(const HierExecutor&) = delete;
  HierExecutor& operator=(const HierExecutor&) = delete;
  std::string_view name() const override { return "hierarchical"; }
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
