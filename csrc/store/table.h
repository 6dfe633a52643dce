// The server's keys and values, and who waits for which: no sockets, no clock.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "store/protocol.h"
#include "store/tcp_server.h"

namespace pc {

// Thread-safety: none; the server's thread owns it.
class StoreTable {
 public:
  struct Answer {
    int client;
    std::shared_ptr<const std::string> bytes;  // a whole reply; one for all who wait for the same
  };
  explicit StoreTable(const StoreServerLimits& limits) : limits_(limits) {}

  // Runs one request of `client` and returns who is to be answered now: the client itself, unless it has to wait for the
  // key, and those whose key has just been set.
  std::vector<Answer> handle(int client, const StoreRequest& request, std::string_view key,
                             std::string_view value);
  void forget(int client);  // it is gone: it waits for nothing

 private:
  Status put(std::string_view key, std::string_view value);
  void answer_waiters(std::string_view key, std::vector<Answer>& answers);
  void take_out(std::string_view key);

  struct Waiter {
    int client;
    StoreOp op;  // kGet, kPop or kWait
  };

  const StoreServerLimits limits_;
  std::map<std::string, std::string, std::less<>> values_;
  std::map<std::string, std::vector<Waiter>, std::less<>> waiting_;  // who came first first
  std::size_t nbytes_ = 0;
};

}  // namespace pc
