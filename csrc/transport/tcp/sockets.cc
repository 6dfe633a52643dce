#include "transport/tcp/sockets.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>

namespace pc {
namespace {

constexpr int kBufferBytes = 4 * 1024 * 1024;
// A host that has vanished: first probe after 15 s of silence, three at 5 s. No TCP_USER_TIMEOUT: it also ends the
// connection to a live peer that does not read for as long, and every call has a deadline anyway.
constexpr int kKeepIdleSeconds = 15, kKeepIntervalSeconds = 5, kKeepProbes = 3;
// Control connections carry little and are always read, so there all of it may be quick.
constexpr int kControlKeepSeconds = 1, kControlUserTimeoutMs = 3000;

void set_int(int fd, int level, int name, int value) { ::setsockopt(fd, level, name, &value, sizeof value); }

void keep_alive(int fd, int idle_seconds, int interval_seconds) {
  set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, idle_seconds);
  set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, interval_seconds);
  set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepProbes);
}

// Setting a size switches the kernel's autotuning off, so a limit that would clamp ours means: do not set it.
bool limit_allows(const char* sysctl) {
  std::ifstream file(sysctl);
  long limit = 0;
  return (file >> limit) && limit >= kBufferBytes;
}

// Before connect or listen: the window scale is agreed upon in the first packet.
void set_buffers(int fd) {
  if (limit_allows("/proc/sys/net/core/wmem_max")) set_int(fd, SOL_SOCKET, SO_SNDBUF, kBufferBytes);
  if (limit_allows("/proc/sys/net/core/rmem_max")) set_int(fd, SOL_SOCKET, SO_RCVBUF, kBufferBytes);
}

bool same_ip(const SocketAddress& a, const SocketAddress& b) {
  if (a.storage.ss_family != b.storage.ss_family) return false;
  if (a.storage.ss_family == AF_INET) {
    const auto& x = reinterpret_cast<const sockaddr_in&>(a.storage);
    const auto& y = reinterpret_cast<const sockaddr_in&>(b.storage);
    return x.sin_addr.s_addr == y.sin_addr.s_addr;
  }
  const auto& x = reinterpret_cast<const sockaddr_in6&>(a.storage);
  const auto& y = reinterpret_cast<const sockaddr_in6&>(b.storage);
  return std::memcmp(&x.sin6_addr, &y.sin6_addr, sizeof x.sin6_addr) == 0;
}

bool is_loopback(const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(address.storage);
    return (ntohl(in.sin_addr.s_addr) >> 24) == 127;
  }
  const auto& in6 = reinterpret_cast<const sockaddr_in6&>(address.storage);
  return address.storage.ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&in6.sin6_addr);
}

Result<Fd> new_socket(const SocketAddress& address) {
  Fd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return system_error("socket for " + to_string(address), errno);
  set_buffers(fd.get());
  return fd;
}

}  // namespace

Result<SocketAddress> parse_ip(const std::string& ip, uint16_t port) {
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(ip.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    return Status(Code::kInvalidArgument, "\"" + ip + "\" is not a numeric IPv4 or IPv6 address");
  }
  SocketAddress address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  ::freeaddrinfo(found);
  return address;
}

Result<SocketAddress> parse_endpoint(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  uint16_t port = 0;
  bool good = colon != std::string_view::npos && colon > 0;
  if (good) {
    const char* const end = text.data() + text.size();
    const std::from_chars_result parsed = std::from_chars(text.data() + colon + 1, end, port);
    good = parsed.ec == std::errc() && parsed.ptr == end && port != 0;
  }
  if (!good) return Status(Code::kInvalidArgument, std::string(text) + " is not an ip:port");
  std::string_view ip = text.substr(0, colon);
  if (ip.size() > 2 && ip.front() == '[' && ip.back() == ']') ip = ip.substr(1, ip.size() - 2);
  return parse_ip(std::string(ip), port);
}

std::string to_string(const SocketAddress& address) {
  char ip[NI_MAXHOST], port[NI_MAXSERV];
  if (address.length == 0 || ::getnameinfo(address.get(), address.length, ip, sizeof ip, port, sizeof port,
                                           NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "(unknown address)";
  }
  std::string text = ip;
  if (address.storage.ss_family == AF_INET6) text = std::string("[").append(ip).append("]");
  return text.append(":").append(port);
}

bool is_wildcard(const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in&>(address.storage).sin_addr.s_addr == htonl(INADDR_ANY);
  }
  const in6_addr& ip = reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr;
  return IN6_IS_ADDR_UNSPECIFIED(&ip) || (IN6_IS_ADDR_V4MAPPED(&ip) && ip.s6_addr32[3] == INADDR_ANY);
}

SocketAddress local_address(int fd) {
  SocketAddress address;
  address.length = sizeof address.storage;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0)
    address.length = 0;
  return address;
}

SocketAddress peer_address(int fd) {
  SocketAddress address;
  address.length = sizeof address.storage;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0)
    address.length = 0;
  return address;
}

Result<Fd> listen_on(const SocketAddress& address, int backlog) {
  PC_ASSIGN_OR_RETURN(Fd fd, new_socket(address));
  if (::bind(fd.get(), address.get(), address.length) != 0) {
    return system_error("bind " + to_string(address), errno);
  }
  if (::listen(fd.get(), backlog) != 0) return system_error("listen " + to_string(address), errno);
  return fd;
}

Result<Fd> start_connect(const SocketAddress& address) {
  PC_ASSIGN_OR_RETURN(Fd fd, new_socket(address));
  if (::connect(fd.get(), address.get(), address.length) != 0 && errno != EINPROGRESS && errno != EINTR) {
    return system_error("connect " + to_string(address), errno);
  }
  return fd;
}

int connect_outcome(int fd) {
  int error = 0;
  socklen_t length = sizeof error;
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0 ? errno : error;
}

Result<Fd> accept_one(int listener) {
  Fd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (fd.valid()) return fd;
  switch (errno) {
    // Nobody, or somebody who has gone again (accept(2) lists the network's errors as his, not ours).
    case EAGAIN:
    case EINTR:
    case ECONNABORTED:
    case EPROTO:
    case ENETDOWN:
    case ENETUNREACH:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENOPROTOOPT:
    case ENONET:
    case EOPNOTSUPP: return Fd();
    default: return system_error("accept", errno);
  }
}

void tune_connection(int fd) {
  set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  const SocketAddress peer = peer_address(fd);
  if (is_loopback(peer) || same_ip(peer, local_address(fd))) {
    // Nothing to probe inside one machine. Measured streaming over loopback: reno 8.7, cubic 8.7, bbr 5.7 GB/s.
    ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
    return;
  }
  keep_alive(fd, kKeepIdleSeconds, kKeepIntervalSeconds);
}

void tune_control_connection(int fd) {
  set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kControlUserTimeoutMs);
  keep_alive(fd, kControlKeepSeconds, kControlKeepSeconds);
}

}  // namespace pc
