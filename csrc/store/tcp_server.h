// Serves a store to the ranks of one job, from its own thread, which sleeps until an event arrives.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "store/values.h"
#include "wire/credentials.h"
#include "wire/hello.h"

namespace pc {

struct StoreServerLimits {
  // The maximum number of connections that have not authenticated, but never more than a quarter of
  // the process's descriptors. Authenticated members are not limited.
  std::size_t pending = 1024;
  StoreLimits values = {};
  double handshake_s = 3;  // after this time a connection that has not authenticated is closed
};

// Thread-safety: addresses() from any thread. The destructor ends the thread and closes every
// connection.
class TcpStoreServer {
 public:
  // Listens on all of `addresses`, numeric "ip:port" each. Port 0 selects any free port. Only exact
  // addresses are bound, never the wildcard. Rejected connections are reported to `log`. Only
  // members of `epoch` are served. A peer of another epoch of this job has connected too early or
  // too late, and is rejected without a warning.
  static Result<std::unique_ptr<TcpStoreServer>> open(const std::vector<std::string>& addresses,
                                                      const Credentials& credentials,
                                                      const StoreServerLimits& limits = {},
                                                      const Logger& log = Logger(),
                                                      uint32_t epoch = kEveryEpoch);
  ~TcpStoreServer();
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;
  const std::vector<std::string>& addresses() const;  // with the ports that were bound
  // In a forked child, which does not have the server's thread: closes every descriptor. The server
  // must not be destroyed after that.
  void close_in_child() noexcept;

 private:
  struct State;
  explicit TcpStoreServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pc
