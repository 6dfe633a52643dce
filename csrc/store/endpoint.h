// "host:port" as the store's ends need it.
#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include "base/status.h"

namespace pc {

struct Endpoint {
  sockaddr_storage storage = {};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// "10.0.0.1:4711", "[::1]:4711" or "node7:4711". A name may have several addresses; looking it up can take seconds and
// cannot be cut short.
Result<std::vector<Endpoint>> resolve(const std::string& address);
Result<std::vector<Endpoint>> resolve(const std::string& host, const std::string& port);
std::string to_string(const Endpoint& endpoint);  // numeric, and again readable by resolve()

}  // namespace pc
