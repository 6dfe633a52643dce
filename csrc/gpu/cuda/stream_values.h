// Words of memory that streams write and wait for. They order the streams of different processes
// without the host, and without a kernel that spins. A stream waits forever if its word is never
// written, so code that gives up must write the word from elsewhere.
#pragma once

#include <cstdint>

#include "gpu/cuda/driver.h"

namespace pc::cuda {

// Makes the stream write `value` to `at`, the address of 4 aligned bytes of device memory, pinned
// memory or a peer's memory. A reader that sees the value also sees the effects of everything
// queued on `stream` before. The stream's context must be current. Returns kUnsupported if the
// driver lacks the function.
Status write_value(const Driver& driver, CUstream stream, CUdeviceptr at, uint32_t value);
// Makes work that is queued on the stream from now on wait until the word is at least `value`. The
// comparison is cyclic: the word may wrap around, as long as it is less than 2^31 ahead of `value`.
Status await_value(const Driver& driver, CUstream stream, CUdeviceptr at, uint32_t value);

}  // namespace pc::cuda
