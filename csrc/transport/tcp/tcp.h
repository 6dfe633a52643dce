// Messages over TCP, with one or several connections between two ranks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "transport/transport.h"
#include "wire/credentials.h"
#include "wire/link.h"

namespace pc {

inline constexpr int kMostSockets = 16;

struct TcpOptions {
  Rank rank = 0, size = 1;
  Credentials credentials = {};
  uint32_t epoch = 0;
  std::vector<std::string> bind_ips = {"127.0.0.1"};  // numeric IPv4 or IPv6; never the wildcard
  LinkLimits limits = {};
  int sockets = 1;        // data connections between two ranks; the same on all ranks
  Logger log = Logger();  // receives reports of rejected connections
};
// The transport listens from the beginning, on a free port of each bind address. Its address() is
// "ip:port", or several of these separated by commas.
Result<std::unique_ptr<Transport>> make_tcp_transport(const TcpOptions& options);

}  // namespace pc
