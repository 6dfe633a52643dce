#include "comm/shared_memory.h"

#include <algorithm>
#include <utility>

#include "engine/hierarchical/hier_executor.h"
#include "engine/shm/shared_executor.h"
#include "shm/local_peers_single.h"
#include "tuning/selection.h"

namespace pc {
namespace {

constexpr std::size_t kMostSharing = 4096;  // ranks; every call reads one cache line of each

// Returns for each world rank the number of its shared-memory domain. Only ranks that share memory
// have the same number.
std::vector<Rank> domains_of(const HostMap& hosts) {
  std::vector<Rank> domains;
  for (std::size_t rank = 0; rank < hosts.ranks.size(); ++rank) {
    const HostMap::Entry& entry = hosts.ranks[rank];
    domains.push_back(entry.why_alone.empty() ? entry.domain : static_cast<Rank>(rank));
  }
  return domains;
}

shm::ChosenPlan choose(const SelectionTable& table, Collective collective, uint64_t nbytes, Rank size,
                       bool fixed_order) {
  const Choice choice = table.choose(collective, {nbytes, true, fixed_order}, {size, size});
  return {choice.algorithm, choice.split};
}

}  // namespace

// Members are destroyed in reverse order: the executors before what they use.
struct SharedMemory::State {
  std::vector<Rank> domain_of;
  std::unique_ptr<LocalPeers> single;  // used if this rank shares no memory but other ranks do
  std::unique_ptr<ShmWakeup> single_wakeup;
  std::unique_ptr<shm::Host> host;
  std::unique_ptr<shm::SharedExecutor> together;    // null: no rank shares memory with this one
  std::unique_ptr<shm::HierExecutor> hierarchical;  // null: no group has domains of several ranks
};

SharedMemory::SharedMemory() : state_(std::make_unique<State>()) {}
SharedMemory::~SharedMemory() = default;

Result<std::unique_ptr<SharedMemory>> SharedMemory::create(const HostMap& hosts, Rank rank,
                                                           const Parts& parts) {
  std::unique_ptr<SharedMemory> made(new SharedMemory());
  State& state = *made->state_;
  state.domain_of = domains_of(hosts);
  const bool is_divided = shm::GroupTable(state.domain_of, rank).shape().worth_it();
  if (parts.local_peers == nullptr && !is_divided) return std::unique_ptr<SharedMemory>();
  LocalPeers* local_peers = parts.local_peers;
  ShmWakeup* wakeup = parts.wakeup;
  if (local_peers == nullptr) {
    PC_ASSIGN_OR_RETURN(state.single, make_single_local_peers(rank));
    local_peers = state.single.get();
    const Rank size = static_cast<Rank>(state.domain_of.size());
    PC_ASSIGN_OR_RETURN(state.single_wakeup, ShmWakeup::create(*local_peers, rank, size));
    wakeup = state.single_wakeup.get();
  }
  PC_ASSIGN_OR_RETURN(state.host, shm::Host::create(*local_peers, *wakeup, parts.single_copy));
  if (parts.local_peers != nullptr) {
    state.together = std::make_unique<shm::SharedExecutor>(*state.host, *parts.reactor, parts.oversubscribed,
                                                           parts.limits, parts.core);
  }
  if (is_divided) {
    const auto choose_plan = [table = SelectionTable::defaults()](auto... what) {
      return choose(table, what...);
    };
    state.hierarchical = std::make_unique<shm::HierExecutor>(
        shm::HierExecutor::Parts{state.host.get(), parts.transport, parts.reactor, parts.core,
                                 parts.oversubscribed, state.domain_of, parts.limits, choose_plan});
  }
  return made;
}

SharedMemory::Use SharedMemory::of(std::span<const Rank> world_ranks) const {
  if (world_ranks.size() < 2 || world_ranks.size() > kMostSharing) return {};
  std::vector<Rank> domains;
  for (const Rank rank : world_ranks) domains.push_back(state_->domain_of[static_cast<std::size_t>(rank)]);
  const shm::ShmDomains shape = shm::GroupTable(domains, 0).shape();
  if (shape.count == 1 && state_->together != nullptr) return {state_->together.get(), true, {}};
  if (shape.worth_it() && state_->hierarchical != nullptr) return {state_->hierarchical.get(), false, shape};
  return {};
}

shm::Heap* SharedMemory::heap() { return state_->together == nullptr ? nullptr : &state_->host->heap(); }

void SharedMemory::close_in_child() noexcept {
  if (state_->single) state_->single->close_in_child();
}

}  // namespace pc
