#include "net/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <cerrno>
#include <charconv>
#include <cstring>

namespace pc {
namespace {

SocketAddress asked(int fd, int (*ask)(int, sockaddr*, socklen_t*)) {
  SocketAddress address;
  address.length = sizeof address.storage;
  if (ask(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) address.length = 0;
  return address;
}

}  // namespace

Result<SocketAddress> parse_ip(const std::string& ip, uint16_t port) {
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(ip.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    return Status(Code::kInvalidArgument, "'" + ip + "' is not a numeric IPv4 or IPv6 address");
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
    good = parsed.ec == std::errc() && parsed.ptr == end;
  }
  if (!good)
    return Status(Code::kInvalidArgument,
                  "'" + std::string(text) + "' is no address; write ip:port, or [ip6]:port");
  std::string_view ip = text.substr(0, colon);
  if (ip.size() > 2 && ip.front() == '[' && ip.back() == ']') ip = ip.substr(1, ip.size() - 2);
  return parse_ip(std::string(ip), port);
}

std::string ip_of(const SocketAddress& address) {
  char ip[NI_MAXHOST];
  const bool known = address.length != 0 && ::getnameinfo(address.get(), address.length, ip, sizeof ip,
                                                          nullptr, 0, NI_NUMERICHOST) == 0;
  return known ? ip : "(unknown address)";
}

uint16_t port_of(const SocketAddress& address) {
  return ntohs(address.storage.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address.storage).sin_port);
}

std::string to_string(const SocketAddress& address) {
  if (address.length == 0) return "(unknown address)";
  const bool brackets = address.storage.ss_family == AF_INET6;
  return (brackets ? "[" : "") + ip_of(address) + (brackets ? "]:" : ":") + std::to_string(port_of(address));
}

std::array<unsigned char, 16> host_bytes(const SocketAddress& address) {
  std::array<unsigned char, 16> bytes = {};
  if (address.storage.ss_family == AF_INET) {
    // 127/8 counts as one host, because every process of this host can use all of its addresses
    const std::size_t counts = is_loopback(address) ? 1 : 4;
    std::memcpy(bytes.data(), &reinterpret_cast<const sockaddr_in&>(address.storage).sin_addr, counts);
  } else if (address.storage.ss_family == AF_INET6) {
    std::memcpy(bytes.data(), &reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr, 8);
  }
  return bytes;
}

bool is_wildcard(const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in&>(address.storage).sin_addr.s_addr == htonl(INADDR_ANY);
  }
  const in6_addr& ip = reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr;
  return IN6_IS_ADDR_UNSPECIFIED(&ip) || (IN6_IS_ADDR_V4MAPPED(&ip) && ip.s6_addr32[3] == INADDR_ANY);
}

bool is_loopback(const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(address.storage);
    return (ntohl(in.sin_addr.s_addr) >> 24) == 127;
  }
  if (address.storage.ss_family != AF_INET6) return false;
  const in6_addr& ip = reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&ip) || (IN6_IS_ADDR_V4MAPPED(&ip) && ip.s6_addr[12] == 127);
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

SocketAddress local_address(int fd) { return asked(fd, ::getsockname); }
SocketAddress peer_address(int fd) { return asked(fd, ::getpeername); }

Result<Fd> new_socket(const SocketAddress& address) {
  Fd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return system_error("socket for " + to_string(address), errno);
  return fd;
}

Status listen_on(const Fd& fd, const SocketAddress& address, int backlog) {
  if (is_wildcard(address)) {
    return Status(Code::kInvalidArgument, "refusing to listen on every interface (" + to_string(address) +
                                              "): name the one address that the other ranks use");
  }
  const int on = 1;  // allows a port to be reused at once after its last owner has ended
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd.get(), address.get(), address.length) != 0)
    return system_error("bind " + to_string(address), errno);
  if (::listen(fd.get(), backlog) != 0) return system_error("listen " + to_string(address), errno);
  return Status::ok();
}

Status start_connect(const Fd& fd, const SocketAddress& address) {
  if (::connect(fd.get(), address.get(), address.length) == 0 || errno == EINPROGRESS || errno == EINTR)
    return Status::ok();
  return system_error("connect " + to_string(address), errno);
}

namespace {

bool is_within_host(int fd) {
  const SocketAddress here = local_address(fd), there = peer_address(fd);
  return there.length > 0 && same_ip(here, there);
}

}  // namespace

void expect_answers(int fd) {
  constexpr int kOn = 1, kIdleS = 1, kIntervalS = 1, kProbes = 3, kUnansweredMs = 3000;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &kOn, sizeof kOn);
  if (is_within_host(fd)) return;
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &kOn, sizeof kOn);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &kIdleS, sizeof kIdleS);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &kIntervalS, sizeof kIntervalS);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &kProbes, sizeof kProbes);
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnansweredMs, sizeof kUnansweredMs);
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
    // No connection is waiting, or the waiting one has already failed: accept(2) returns its
    // pending network errors.
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

}  // namespace pc
