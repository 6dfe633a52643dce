// The server's keys and values, and which clients wait for which key. It has no sockets and no
// clock.
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
    // a whole reply; shared by all clients that wait for the same key
    std::shared_ptr<const std::string> bytes;
  };
  explicit StoreTable(const StoreLimits& limits) : values_(limits) {}

  // Runs one call of `client` and returns the answers to send now: to `client` itself, unless it
  // must wait for the key, and to the clients that waited for a key that this call has set.
  std::vector<Answer> handle(int client, const StoreCall& call);
  void forget(int client);  // the client is disconnected and no longer waits

 private:
  void answer_waiters(std::string_view key, std::vector<Answer>& answers);

  struct Waiter {
    int client;
    StoreOp op;  // kGet, kPop or kWait
  };

  StoreValues values_;
  std::map<std::string, std::vector<Waiter>, std::less<>> waiting_;  // by key, in the order of arrival
};

}  // namespace pc
