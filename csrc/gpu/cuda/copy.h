// Copies that a stream performs. Host memory must be pinned (PinnedMemory, RegisteredMemory): with
// ordinary memory the call blocks until the copy is done. The memory must stay valid until the
// stream has completed the copy. The stream's context must be current.
#pragma once

#include <cstddef>
#include <span>

#include "gpu/cuda/driver.h"

namespace pc::cuda {

Status copy_to_device(const Driver& driver, CUdeviceptr to, std::span<const std::byte> from, CUstream stream);
Status copy_to_host(const Driver& driver, std::span<std::byte> to, CUdeviceptr from, CUstream stream);
// `to` and `from` may be on two devices, if one can access the other's memory or the driver has a
// path between them.
Status copy_on_device(const Driver& driver, CUdeviceptr to, CUdeviceptr from, std::size_t nbytes,
                      CUstream stream);
Status fill_bytes(const Driver& driver, CUdeviceptr to, unsigned char value, std::size_t nbytes,
                  CUstream stream);

}  // namespace pc::cuda
