// Sockets as we want them: numeric addresses, non-blocking, closed on exec, tuned for the path they take.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/status.h"

namespace pc {

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};
// Numeric IPv4 or IPv6, no name is ever looked up. parse_endpoint: "10.0.0.1:4711" or "[fe80::1%eth0]:4711".
Result<SocketAddress> parse_ip(const std::string& ip, uint16_t port);
Result<SocketAddress> parse_endpoint(std::string_view text);
std::string to_string(const SocketAddress& address);  // what parse_endpoint reads
bool is_wildcard(const SocketAddress& address);

// Where a socket is bound, and who is at the other end. Length 0 if the kernel does not know.
SocketAddress local_address(int fd);
SocketAddress peer_address(int fd);

Result<Fd> listen_on(const SocketAddress& address, int backlog);
Result<Fd> start_connect(const SocketAddress& address);  // under way: writable once it is decided
int connect_outcome(int fd);                             // errno of a decided connect, 0 if it succeeded
Result<Fd> accept_one(int listener);                     // an invalid Fd: nobody is waiting
// For a connected socket. Every option is a hint: what the kernel refuses is left as it is.
void tune_connection(int fd);
// For a control connection: a peer whose host does not answer for 3 s is lost, whether we speak or not.
void tune_control_connection(int fd);

}  // namespace pc
