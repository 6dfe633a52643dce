// How the groups of one rank use shared memory: all their ranks together, or those of each host.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "bootstrap/world.h"
#include "engine/executor.h"
#include "engine/hierarchical/group_table.h"
#include "engine/shm/host.h"
#include "engine/shm/limits.h"
#include "transport/reactor.h"

namespace pc {

// Thread-safety: all methods.
class SharedMemory {
 public:
  struct Parts {                        // not owned; they outlive this
    LocalPeers* local_peers = nullptr;  // null: nobody shares memory with this rank
    ShmWakeup* wakeup = nullptr;        // likewise
    Transport* transport = nullptr;
    Reactor* reactor = nullptr;
    CoreWatch* core = nullptr;    // hears of waits in shared memory; may be null
    bool oversubscribed = false;  // more ranks than cores share the host
    bool single_copy = true;
    shm::LimitsByRanks limits = {};
  };
  // Of that rank. Null: no group of the world can use any.
  static Result<std::unique_ptr<SharedMemory>> create(const HostMap& hosts, Rank rank, const Parts& parts);
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  struct Use {
    Executor* executor = nullptr;  // null: none, the group runs plans
    bool all = false;              // its ranks share memory
    shm::ShmDomains domains = {};  // else, if they are worth it, the executor goes by these
  };
  Use of(std::span<const Rank> world_ranks) const;
  shm::Heap* heap();  // null: nobody shares memory with this rank
  void close_in_child() noexcept;

 private:
  SharedMemory();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pc
