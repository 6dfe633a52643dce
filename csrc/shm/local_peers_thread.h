// Local peers for tests: the ranks of one world are threads of one process. Every byte then has
// only one address, so that ThreadSanitizer sees all accesses to it.
#pragma once

#include <memory>
#include <vector>

#include "shm/local_peers.h"

namespace pc {

// The memory and the notifiers of all ranks; lives as long as the last object that local_peers_of()
// returned. Thread-safety: all methods.
class ThreadHost {
 public:
  // `domains` has the sizes of the sets of ranks that share memory, in rank order. If it is empty,
  // all ranks share memory.
  static Result<std::shared_ptr<ThreadHost>> create(Rank size, const std::vector<Rank>& domains = {});
  virtual ~ThreadHost() = default;
  virtual std::unique_ptr<LocalPeers> local_peers_of(Rank rank) = 0;
};

}  // namespace pc
