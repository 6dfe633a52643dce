// Device memory that other processes map by a file descriptor. The descriptor is passed by
// SCM_RIGHTS, so a process that has not received it cannot guess it.
#pragma once

#include <cstddef>
#include <utility>

#include "base/fd.h"
#include "gpu/cuda/context.h"

namespace pc::cuda {

// Thread-safety: at() from any thread; one owner otherwise. The destructor calls the driver, so it
// must not be static. No queued work may use the memory when this object is destroyed.
class ShareableMemory {
 public:
  // Allocates at least `nbytes` on `context`'s device. Returns kUnsupported where
  // DeviceInfo::shareable_memory is false.
  static Result<ShareableMemory> create(const Context& context, std::size_t nbytes);
  // Maps memory that another process has exported, for use by `context`'s device. `nbytes` is the
  // exporter's nbytes(). The memory lives until both processes have released it.
  static Result<ShareableMemory> open(const Context& context, const Fd& fd, std::size_t nbytes);
  ShareableMemory(ShareableMemory&& other) noexcept
      : context_(std::move(other.context_)),
        parts_(std::exchange(other.parts_, {})) {}
  ShareableMemory& operator=(ShareableMemory&&) = delete;
  ShareableMemory(const ShareableMemory&) = delete;
  ShareableMemory& operator=(const ShareableMemory&) = delete;
  ~ShareableMemory();

  Result<Fd> export_fd() const;  // a new descriptor each time
  CUdeviceptr at() const { return parts_.at; }
  std::size_t nbytes() const { return parts_.nbytes; }  // rounded up to the device's granularity

 private:
  struct Parts {  // if a creation fails, only some members are set
    CUmemGenericAllocationHandle handle = 0;
    bool has_handle = false;
    CUdeviceptr at = 0;
    std::size_t nbytes = 0;
    bool is_mapped = false;
  };
  explicit ShareableMemory(Context context) : context_(std::move(context)) {}
  Status map();  // requires the handle and the size

  Context context_;
  Parts parts_;
};

}  // namespace pc::cuda
