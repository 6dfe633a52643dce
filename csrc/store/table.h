// The server's keys and values, and which clients wait for which key: no sockets, no clock.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "store/protocol.h"
#include "store/values.h"

namespace pc {

// Thread-safety: none; the server's thread owns it.
class StoreTable {
 public:
  struct Answer {
    int client;
    std::shared_ptr<const std::string> bytes;  // a whole reply; one for all who wait for the same
  };
  explicit StoreTable(const StoreLimits& limits) : values_(limits) {}

  // Runs one call of `client` and returns the clients that are to be answered now: itself, unless it has to wait for the
  // key, and those whose key has just been set.
  std::vector<Answer> handle(int client, const StoreCall& call);
  void forget(int client);  // it is gone: it waits for nothing

 private:
  void answer_waiters(std::string_view key, std::vector<Answer>& answers);

  struct Waiter {
    int client;
    StoreOp op;  // kGet, kPop or kWait
  };

  StoreValues values_;
  std::map<std::string, std::vector<Waiter>, std::less<>>
      waiting_;  // by key, in the order in which they came
};

}  // namespace pc
