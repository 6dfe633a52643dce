// Serves a store to the ranks of one job, from a thread of its own that sleeps until something comes.
#pragma once

#include <memory>
#include <string>

#include "store/store.h"
#include "wire/frame.h"

namespace pc {

struct StoreServerLimits {
  std::size_t strangers = 1024;  // connections that have not said who they are; members are not limited
  std::size_t keys = 100'000;
  std::size_t total_nbytes = std::size_t{1} << 30;  // of all keys and values
  double hello_s = 3;                               // then a connection that has not said who it is goes
};

// Thread-safety: address() from any thread. The destructor ends the thread and closes every connection.
class TcpStoreServer {
 public:
  // Port 0: any free one. Only exact addresses are bound, never the wildcard.
  static Result<std::unique_ptr<TcpStoreServer>> open(const std::string& host, int port, const JobId& job,
                                                      const StoreServerLimits& limits = {});
  static Result<std::unique_ptr<TcpStoreServer>> open(const std::string& address, const JobId& job,
                                                      const StoreServerLimits& limits = {});  // "host:port"
  ~TcpStoreServer();
  const std::string& address() const;  // numeric, with the port that was really bound

 private:
  struct State;
  explicit TcpStoreServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pc
