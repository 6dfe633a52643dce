// Words of memory that streams write and wait for. They order the streams of different processes
// without the host, and without a kernel that spins. A stream waits forever if its word is never
// written: code that gives up must write the word from elsewhere.
#pragma once

#include <cstdint>

#include "gpu/cuda/driver.h"

namespace pc::cuda {

// `at` is the address of 4 aligned bytes of device memory, pinned memory or a peer's memory.
// Everything queued on `stream` before is visible to a reader that sees the value. The stream's
// context must be current. Returns kUnsupported if the driver lacks the function.
Status write_value(const Driver& driver, CUstream stream, CUdeviceptr at, uint32_t value);
// Work queued afterwards waits until the word is at least `value`. The comparison is cyclic: the
// word may wrap around, as long as it is less than 2^31 ahead.
Status await_value(const Driver& driver, CUstream stream, CUdeviceptr at, uint32_t value);

}  // namespace pc::cuda
