// A copy with ordinary vector loads and stores at every size, into memory that other cores read,
// such as a ring in shared memory. memcpy switches to `rep movsb` or to non-temporal stores at its
// own thresholds; if the lines of the destination are in the last-level cache, those are half as
// fast or less.
#pragma once

#include <cstddef>

namespace pc {

// The ranges must not overlap. Any alignment is allowed. Without Highway it is memcpy.
void copy(std::byte* to, const std::byte* from, std::size_t nbytes);

// As copy(), but with non-temporal stores, which are complete when it returns. If the lines of the
// destination are in the cache of another, distant core, ordinary stores wait for each line.
void copy_past_caches(std::byte* to, const std::byte* from, std::size_t nbytes);

}  // namespace pc
