// Device memory that other processes map by a file descriptor, which they get as descriptors are passed (SCM_RIGHTS): who has not
// been given it cannot guess it.
#pragma once

#include <cstddef>
#include <utility>

#include "base/fd.h"
#include "gpu/cuda/context.h"

namespace pc::cuda {

// Thread-safety: at() from any thread; one owner otherwise. The destructor calls the driver: no static, and nothing may be
// queued that uses the memory.
class ShareableMemory {
 public:
  // At least `nbytes`, on `context`'s device. kUnsupported: see DeviceInfo::shareable_memory.
  static Result<ShareableMemory> create(const Context& context, std::size_t nbytes);
  // What another process exported, for use by `context`'s device. `nbytes` is the exporter's nbytes(). The memory lives until
  // both have let it go.
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
  std::size_t nbytes() const { return parts_.nbytes; }  // rounded up as the device wants it

 private:
  struct Parts {  // as far as they have been made
    CUmemGenericAllocationHandle handle = 0;
    bool has_handle = false;
    CUdeviceptr at = 0;
    std::size_t nbytes = 0;
    bool is_mapped = false;
  };
  explicit ShareableMemory(Context context) : context_(std::move(context)) {}
  Status map();  // once there is a handle and a size

  Context context_;
  Parts parts_;
};

}  // namespace pc::cuda
