// Messages over one TCP connection per pair of ranks.
#pragma once

#include <memory>
#include <string>

#include "base/log.h"
#include "transport/transport.h"
#include "wire/link.h"

namespace pc {

struct TcpOptions {
  Rank rank = 0, size = 1;
  JobId job = {};
  uint32_t epoch = 0;
  std::string bind_address = "127.0.0.1";  // numeric IPv4 or IPv6; never the wildcard
  LinkLimits limits = {};
  Logger log = Logger();  // hears of strangers that were turned away
};
// Listens at once on a free port; address() is then "[ip]:port".
Result<std::unique_ptr<Transport>> make_tcp_transport(const TcpOptions& options);

}  // namespace pc
