#include "shm/descriptor_message.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

namespace pc {
namespace {

// Buffer for the descriptors of one message, in the layout that the kernel expects.
struct Control {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kMostDescriptors * sizeof(int))> bytes = {};
};

std::vector<Fd> descriptors_of(msghdr& message) {
  std::vector<Fd> all;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
      all.emplace_back(fd);
    }
  }
  return all;
}

}  // namespace

Result<bool> send_message(int socket, std::span<const std::byte> bytes, std::span<const int> descriptors) {
  Control control;
  iovec data = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control.bytes.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(c), descriptors.data(), descriptors.size_bytes());
  }
  for (;;) {
    if (::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return true;
    switch (errno) {
      case EINTR: continue;
      case EAGAIN:
      case ENOBUFS:
      case ETOOMANYREFS: return false;
      case EPIPE:
      case ECONNRESET:
        return Status(Code::kPeerFailure, system_error("sending descriptors", errno).message());
      default: return system_error("sending descriptors", errno);
    }
  }
}

Result<std::optional<DescriptorMessage>> receive_message(int socket, std::span<std::byte> into,
                                                         std::size_t most_descriptors) {
  Control control;
  iovec data = {into.data(), into.size()};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (most_descriptors > 0) {
    message.msg_control = control.bytes.data();
    message.msg_controllen = CMSG_LEN(most_descriptors * sizeof(int));
  }
  ssize_t count = -1;
  do {
    count = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    // ECONNRESET means that the peer closed the socket before it read all messages. The kernel
    // reports this once; the messages that the peer sent before can still be received.
  } while (count < 0 && (errno == EINTR || errno == ECONNRESET));
  if (count < 0 && errno == EAGAIN) return std::optional<DescriptorMessage>();
  if (count < 0) return Status(Code::kPeerFailure, system_error("receiving descriptors", errno).message());
  DescriptorMessage received{descriptors_of(message)};
  if (count == 0) return Status(Code::kPeerFailure, "the other end closed the connection");
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    return Status(
        Code::kMismatch,
        "descriptors were lost: more came than expected, or this process may open no more (ulimit -n)");
  }
  if ((message.msg_flags & MSG_TRUNC) != 0 || static_cast<std::size_t>(count) != into.size())
    return Status(Code::kMismatch, "a message has the wrong size");
  if (received.descriptors.size() > most_descriptors)
    return Status(Code::kMismatch, "a message has too many descriptors");
  return std::optional<DescriptorMessage>(std::move(received));
}

}  // namespace pc
