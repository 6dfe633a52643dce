#include "store/endpoint.h"

#include <netdb.h>

#include <charconv>
#include <cstring>

namespace pc {

Result<std::vector<Endpoint>> resolve(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  const bool brackets = !address.empty() && address.front() == '[';
  const bool whole =
      colon != std::string::npos && colon + 1 < address.size() && (!brackets || address[colon - 1] == ']');
  if (!whole || colon == 0) {
    return Status(Code::kInvalidArgument, "'" + address + "' is no address; write host:port, or [ip6]:port");
  }
  return resolve(brackets ? address.substr(1, colon - 2) : address.substr(0, colon),
                 address.substr(colon + 1));
}

Result<std::vector<Endpoint>> resolve(const std::string& host, const std::string& port) {
  uint16_t number = 0;  // the library would take 99999 for another port
  const std::from_chars_result parsed = std::from_chars(port.data(), port.data() + port.size(), number);
  if (parsed.ec != std::errc() || parsed.ptr != port.data() + port.size()) {
    return Status(Code::kInvalidArgument, "'" + port + "' is no port; 0 to 65535 are");
  }
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) {
    // A name that is unknown now may be known soon (a container that starts), so this is no argument error.
    return Status(Code::kSystem, "look up '" + host + "' port " + port + ": " + ::gai_strerror(error));
  }
  std::vector<Endpoint> endpoints;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    Endpoint endpoint;
    std::memcpy(&endpoint.storage, each->ai_addr, each->ai_addrlen);
    endpoint.length = each->ai_addrlen;
    endpoints.push_back(endpoint);
  }
  ::freeaddrinfo(found);
  return endpoints;
}

std::string to_string(const Endpoint& endpoint) {
  char host[128], port[16];
  if (::getnameinfo(endpoint.get(), endpoint.length, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "unknown address";
  }
  const bool brackets = endpoint.storage.ss_family == AF_INET6;
  return (brackets ? "[" : "") + std::string(host) + (brackets ? "]:" : ":") + port;
}

}  // namespace pc
