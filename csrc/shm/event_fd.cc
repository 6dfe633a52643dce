#include "shm/event_fd.h"

#include <fcntl.h>

#include <string>
#include <string_view>

namespace pc {

Result<EventFd> EventFd::adopt(Fd fd) {
  const Status refused(Code::kMismatch, "what another rank sent as its notifier is not a usable eventfd");
  const int flags = ::fcntl(fd.get(), F_GETFL);
  if (flags < 0 || (flags & O_NONBLOCK) == 0 || (flags & O_ACCMODE) != O_RDWR) return refused;
  char target[64];
  const std::string link = "/proc/self/fd/" + std::to_string(fd.get());
  const ssize_t length = ::readlink(link.c_str(), target, sizeof target);
  // Without /proc the kind of the descriptor is unknown; it was sent by a rank of this job, so it
  // is accepted.
  if (length >= 0 && std::string_view(target, static_cast<std::size_t>(length)) != "anon_inode:[eventfd]")
    return refused;
  return EventFd(std::move(fd));
}

}  // namespace pc
