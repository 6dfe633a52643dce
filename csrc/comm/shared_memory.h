// Selects for each group whether its collectives use shared memory: among all ranks of the group,
// among the ranks of each host, or not at all.
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
  struct Parts {                        // not owned; they outlive this object
    LocalPeers* local_peers = nullptr;  // null: no rank shares memory with this one
    ShmWakeup* wakeup = nullptr;        // null: no rank shares memory with this one
    Transport* transport = nullptr;
    Reactor* reactor = nullptr;
    CoreWatch* core = nullptr;    // is notified of waits in shared memory; may be null
    bool oversubscribed = false;  // more ranks than cores share the host
    bool single_copy = true;
    shm::LimitsByRanks limits = {};
  };
  // Creates the object for `rank`. Returns null if no group of the world can use shared memory.
  static Result<std::unique_ptr<SharedMemory>> create(const HostMap& hosts, Rank rank, const Parts& parts);
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  struct Use {
    Executor* executor = nullptr;  // null: the group runs plans without shared memory
    bool all = false;              // all ranks of the group share memory
    shm::ShmDomains domains = {};  // if not `all`: the shared-memory domains that `executor` uses
  };
  Use of(std::span<const Rank> world_ranks) const;
  shm::Heap* heap();  // null: no rank shares memory with this one
  void close_in_child() noexcept;

 private:
  SharedMemory();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pc
