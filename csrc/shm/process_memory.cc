#include "shm/process_memory.h"

#include <sys/uio.h>

#include <cerrno>
#include <string>

namespace pc {

Status read_process_memory(pid_t pid, uint64_t address, std::span<std::byte> into) {
  while (!into.empty()) {
    iovec here{into.data(), into.size()};
    iovec there{reinterpret_cast<void*>(address), into.size()};
    const ssize_t got = ::process_vm_readv(pid, &here, 1, &there, 1, 0);
    if (got <= 0) {
      const int why = got == 0 ? EFAULT : errno;
      const Code code = why == ESRCH    ? Code::kPeerFailure
                        : why == EFAULT ? Code::kSystem
                                        : Code::kUnsupported;
      return Status(code,
                    system_error("process_vm_readv from process " + std::to_string(pid), why).message());
    }
    into = into.subspan(static_cast<std::size_t>(got));
    address += static_cast<uint64_t>(got);
  }
  return Status::ok();
}

}  // namespace pc
