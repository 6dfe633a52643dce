// The network interfaces of this host (getifaddrs), for choosing where to listen.
#pragma once

#include <string>
#include <vector>

#include "base/export.h"
#include "base/status.h"

namespace pc {

struct Interface {
  std::string name;
  std::string ip;      // numeric; an interface with several addresses has one entry for each
  unsigned flags = 0;  // IFF_UP, IFF_RUNNING, IFF_LOOPBACK and so on: netdevice(7)
};
// Returns the interfaces that have an IPv4 or IPv6 address, in the kernel's order.
PC_EXPORT Result<std::vector<Interface>> interfaces();

}  // namespace pc
