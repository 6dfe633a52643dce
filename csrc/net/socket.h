// Non-blocking, close-on-exec TCP sockets, with numeric addresses. Names are resolved elsewhere,
// where a look-up can have a deadline.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/export.h"
#include "base/fd.h"
#include "base/status.h"

namespace pc {

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};
// parse_ip() reads a numeric IP address, parse_endpoint() "10.0.0.1:4711" or "[fe80::1%eth0]:4711".
// Port 0 is for listeners, for which the kernel then selects a port.
Result<SocketAddress> parse_ip(const std::string& ip, uint16_t port);
PC_EXPORT Result<SocketAddress> parse_endpoint(std::string_view text);
std::string to_string(const SocketAddress& address);  // in the format of parse_endpoint
std::string ip_of(const SocketAddress& address);      // without port and brackets, in the format of parse_ip
uint16_t port_of(const SocketAddress& address);
// Returns 16 bytes that identify a host: the IPv4 address, or the /64 prefix of an IPv6 address,
// because a host can use all addresses of its /64. The rest is zeros. All of 127/8 counts as one
// host.
std::array<unsigned char, 16> host_bytes(const SocketAddress& address);
bool is_wildcard(const SocketAddress& address);
bool is_loopback(const SocketAddress& address);
bool same_ip(const SocketAddress& a, const SocketAddress& b);

// local_address() returns the address of the socket, peer_address() that of its peer. The length is
// 0 if the kernel does not know the address.
PC_EXPORT SocketAddress local_address(int fd);
SocketAddress peer_address(int fd);

PC_EXPORT Result<Fd> new_socket(const SocketAddress& address);  // creates a socket of the address's family
// Rejects the wildcard address, which would expose the port on every interface.
PC_EXPORT Status listen_on(const Fd& fd, const SocketAddress& address, int backlog);
// Starts to connect. The socket becomes writable when the outcome is known.
PC_EXPORT Status start_connect(const Fd& fd, const SocketAddress& address);
// Sets the options of a connection on which the peer answers every request at once. A remote host
// that does not acknowledge for 3 s counts as lost, whether or not this host sends. A connection
// within a host has no such limit: there the kernel closes the connections of a process that has
// ended, and a busy kernel may acknowledge late.
void expect_answers(int fd);
int connect_outcome(int fd);                    // errno of a finished connect, 0 if it succeeded
PC_EXPORT Result<Fd> accept_one(int listener);  // an invalid Fd if no connection is waiting

}  // namespace pc
