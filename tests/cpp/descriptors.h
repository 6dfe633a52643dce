// Functions on this process's file descriptors.
#pragma once

#include <fcntl.h>

#include <cstddef>
#include <filesystem>
#include <iterator>

#include "base/fd.h"

namespace pc::testing {

inline std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                       std::filesystem::directory_iterator());
}

inline Fd duplicate(int fd) { return Fd(::fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

}  // namespace pc::testing
