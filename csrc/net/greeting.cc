#include "net/greeting.h"

#include <sys/socket.h>

#include <cerrno>
#include <span>

namespace pc {

Status Greeting::write() {
  const std::span<const std::byte> output = handshake_.output();
  if (output.empty()) return Status::ok();
  // A new connection's send buffer has room for a handshake, so after a short send the connection
  // is useless.
  const ssize_t count = ::send(fd(), output.data(), output.size(), MSG_NOSIGNAL);
  if (count != static_cast<ssize_t>(output.size()))
    return system_error("sending the handshake", count < 0 ? errno : ENOBUFS);
  handshake_.sent(output.size());
  return Status::ok();
}

Status Greeting::move() {
  const std::span<std::byte> input = handshake_.input();
  if (input.empty()) return Status::ok();
  const ssize_t count = ::recv(fd(), input.data(), input.size(), 0);
  if (count == 0)
    return Status(Code::kPeerFailure, "it closed the connection before the handshake was complete");
  if (count < 0) {
    return errno == EAGAIN || errno == EINTR ? Status::ok() : system_error("receiving the handshake", errno);
  }
  const Status status = handshake_.received(static_cast<std::size_t>(count));
  const Status written = write();
  return status.is_ok() ? written : status;
}

Status Greeting::decide(Decision decision) {
  handshake_.decide(decision);
  return write();
}

}  // namespace pc
