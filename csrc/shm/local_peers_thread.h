// For tests: the ranks of one world as threads of one process, where every byte has one address, so that ThreadSanitizer sees
// who touches it.
#pragma once

#include <memory>
#include <vector>

#include "shm/local_peers.h"

namespace pc {

// The memory and the notifiers of all ranks; lives as long as the last local_peers_of(). Thread-safety: all
// methods.
class ThreadHost {
 public:
  // `domains`: which ranks share memory, by their sizes, in the order of ranks; empty: all do.
  static Result<std::shared_ptr<ThreadHost>> create(Rank size, const std::vector<Rank>& domains = {});
  virtual ~ThreadHost() = default;
  virtual std::unique_ptr<LocalPeers> local_peers_of(Rank rank) = 0;
};

}  // namespace pc
