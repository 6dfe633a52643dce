// TCP sockets by numeric address: non-blocking, closed on exec. Names are looked up elsewhere, where a look-up can be bounded.
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
// parse_endpoint: "10.0.0.1:4711", "[fe80::1%eth0]:4711". Port 0 is for those who listen.
Result<SocketAddress> parse_ip(const std::string& ip, uint16_t port);
PC_EXPORT Result<SocketAddress> parse_endpoint(std::string_view text);
std::string to_string(const SocketAddress& address);  // what parse_endpoint reads
std::string ip_of(const SocketAddress& address);      // without port and brackets: what parse_ip reads
uint16_t port_of(const SocketAddress& address);
// The IPv4 address (all of 127/8 is one), or the /64 of an IPv6 address (who has one of it has them all), filled up with zeros.
std::array<unsigned char, 16> host_bytes(const SocketAddress& address);
bool is_wildcard(const SocketAddress& address);
bool is_loopback(const SocketAddress& address);
bool same_ip(const SocketAddress& a, const SocketAddress& b);

// Where a socket is bound, and who is at the other end. Length 0 if the kernel does not know.
PC_EXPORT SocketAddress local_address(int fd);
SocketAddress peer_address(int fd);

PC_EXPORT Result<Fd> new_socket(const SocketAddress& address);  // of its family
// Refuses the wildcard: what is not bound cannot be attacked.
PC_EXPORT Status listen_on(const Fd& fd, const SocketAddress& address, int backlog);
PC_EXPORT Status start_connect(const Fd& fd,
                               const SocketAddress& address);  // under way: writable once it is decided
// For a connection on which every question is answered at once: another host that does not answer for 3 s is lost, whether
// this one speaks or not. Within a host the kernel ends the connections of a process that has ended, and a kernel that is
// busy may answer late.
void expect_answers(int fd);
int connect_outcome(int fd);                    // errno of a decided connect, 0 if it succeeded
PC_EXPORT Result<Fd> accept_one(int listener);  // an invalid Fd: nobody is waiting

}  // namespace pc
