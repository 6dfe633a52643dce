// Memory allocated by the driver, and other memory that is registered with it. Obtaining either
// takes milliseconds, and the device may stop meanwhile: allocate memory once and keep it, never
// per call.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "gpu/cuda/context.h"
#include "gpu/cuda/driver.h"

namespace pc::cuda {

// Memory of one device. Freeing it waits until the device is idle, so it must not be freed while a
// kernel on that device waits for a peer. Thread-safety: at() from any thread; one owner otherwise.
// The destructor calls the driver, so it must not be static.
class DeviceMemory {
 public:
  static Result<DeviceMemory> allocate(const Context& context, std::size_t nbytes);
  DeviceMemory(DeviceMemory&& other) noexcept
      : context_(std::move(other.context_)),
        at_(std::exchange(other.at_, 0)),
        nbytes_(other.nbytes_) {}
  DeviceMemory& operator=(DeviceMemory&&) = delete;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory();

  CUdeviceptr at() const { return at_; }
  std::size_t nbytes() const { return nbytes_; }
  const Context& context() const { return context_; }

 private:
  DeviceMemory(Context context, CUdeviceptr at, std::size_t nbytes)
      : context_(std::move(context)),
        at_(at),
        nbytes_(nbytes) {}
  Context context_;
  CUdeviceptr at_;
  std::size_t nbytes_;
};

// Host memory, pinned for every device of this process; kernels may use it at the same address.
// Thread-safety: bytes() from any thread; one owner otherwise. The destructor calls the driver, so
// it must not be static.
class PinnedMemory {
 public:
  static Result<PinnedMemory> allocate(const Context& context, std::size_t nbytes);
  PinnedMemory(PinnedMemory&& other) noexcept
      : context_(std::move(other.context_)),
        bytes_(std::exchange(other.bytes_, {})) {}
  PinnedMemory& operator=(PinnedMemory&&) = delete;
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  ~PinnedMemory();

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  PinnedMemory(Context context, std::span<std::byte> bytes) : context_(std::move(context)), bytes_(bytes) {}
  Context context_;
  std::span<std::byte> bytes_;
};

// Host memory of another owner (such as a shared segment), pinned for as long as this object lives.
// The memory must outlive this object, and no queued work may use it when this object is destroyed.
// Thread-safety: one owner. The destructor calls the driver, so it must not be static.
class RegisteredMemory {
 public:
  // Accepts memory that is registered already. Such memory stays registered when this object is
  // destroyed, and the code that registered it must unregister it.
  static Result<RegisteredMemory> of(const Context& context, std::span<std::byte> bytes);
  RegisteredMemory(RegisteredMemory&& other) noexcept
      : context_(std::move(other.context_)),
        bytes_(std::exchange(other.bytes_, {})),
        is_ours_(std::exchange(other.is_ours_, false)) {}
  RegisteredMemory& operator=(RegisteredMemory&&) = delete;
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;
  ~RegisteredMemory();

  std::span<std::byte> bytes() const { return bytes_; }
  bool is_ours() const { return is_ours_; }  // false: it was registered before

 private:
  RegisteredMemory(Context context, std::span<std::byte> bytes, bool is_ours)
      : context_(std::move(context)),
        bytes_(bytes),
        is_ours_(is_ours) {}
  Context context_;
  std::span<std::byte> bytes_;
  bool is_ours_;
};

}  // namespace pc::cuda
