// TCP sockets by numeric address: non-blocking and close-on-exec. Names are resolved elsewhere,
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
// parse_endpoint reads "10.0.0.1:4711" and "[fe80::1%eth0]:4711". Port 0 is for listeners.
Result<SocketAddress> parse_ip(const std::string& ip, uint16_t port);
PC_EXPORT Result<SocketAddress> parse_endpoint(std::string_view text);
std::string to_string(const SocketAddress& address);  // in the format of parse_endpoint
std::string ip_of(const SocketAddress& address);      // without port and brackets, in the format of parse_ip
uint16_t port_of(const SocketAddress& address);
// The IPv4 address (all of 127/8 counts as one), or the /64 of an IPv6 address (a host has all
// addresses of its /64), padded with zeros.
std::array<unsigned char, 16> host_bytes(const SocketAddress& address);
bool is_wildcard(const SocketAddress& address);
bool is_loopback(const SocketAddress& address);
bool same_ip(const SocketAddress& a, const SocketAddress& b);

// The socket's own address, and the peer's. Length 0 if the kernel does not know it.
PC_EXPORT SocketAddress local_address(int fd);
SocketAddress peer_address(int fd);

PC_EXPORT Result<Fd> new_socket(const SocketAddress& address);  // of the address's family
// Refuses the wildcard address: an address that is not bound cannot be attacked.
PC_EXPORT Status listen_on(const Fd& fd, const SocketAddress& address, int backlog);
PC_EXPORT Status start_connect(const Fd& fd,
                               // starts the connect; the socket becomes writable when the outcome
                               // is known
                               const SocketAddress& address);
// For a connection on which every request is answered at once. A remote host that does not answer
// for 3 s counts as lost, whether or not this host sends. No such limit applies within a host:
// there the kernel closes the connections of a process that has ended, and a busy kernel may answer
// late.
void expect_answers(int fd);
int connect_outcome(int fd);                    // errno of a finished connect, 0 if it succeeded
PC_EXPORT Result<Fd> accept_one(int listener);  // an invalid Fd if no connection is waiting

}  // namespace pc
