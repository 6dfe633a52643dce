// Words of memory that streams write and wait for: order between the streams of different processes without the host, and
// without a kernel that spins. A stream whose word never comes waits for ever: whoever gives up writes the word from elsewhere.
#pragma once

#include <cstdint>

#include "gpu/cuda/driver.h"

namespace pc::cuda {

// `at`: 4 bytes, aligned, of device memory, of pinned memory or of a peer's. Everything queued on `stream` before is visible to
// who sees the value. The stream's context must be current. kUnsupported: this driver cannot.
Status write_value(const Driver& driver, CUstream stream, CUdeviceptr at, uint32_t value);
// What is queued afterwards waits until the word is at least `value`. Counts as a circle: the word may wrap around, as long as
// it is less than 2^31 ahead.
Status await_value(const Driver& driver, CUstream stream, CUdeviceptr at, uint32_t value);

}  // namespace pc::cuda
