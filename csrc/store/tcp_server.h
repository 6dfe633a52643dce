// Serves a store to the ranks of one job, from a thread of its own that sleeps until something comes.
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
  // Connections that have not proved who they are; members are not limited. Never more than a quarter of the process's
  // descriptors.
  std::size_t pending = 1024;
  StoreLimits values = {};
  double handshake_s = 3;  // then a connection that has not proved who it is goes
};

// Thread-safety: addresses() from any thread. The destructor ends the thread and closes every connection.
class TcpStoreServer {
 public:
  // Listens on all of `addresses`, numeric "ip:port" each. Port 0: any free one. Only exact addresses are bound, never the
  // wildcard. `log` hears of connections that were rejected. `epoch`: the only one that is served; who is of
  // another one of this job, and early or late, is rejected without a warning.
  static Result<std::unique_ptr<TcpStoreServer>> open(const std::vector<std::string>& addresses,
                                                      const Credentials& credentials,
                                                      const StoreServerLimits& limits = {},
                                                      const Logger& log = Logger(),
                                                      uint32_t epoch = kEveryEpoch);
  ~TcpStoreServer();
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;
  const std::vector<std::string>& addresses() const;  // with the ports that were really bound
  // In a forked child, which has not the server's thread: closes every descriptor. Then it must not be destroyed.
  void close_in_child() noexcept;

 private:
  struct State;
  explicit TcpStoreServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pc
