// A copy with ordinary vector loads and stores at every size, into memory that other cores read,
// such as a ring in shared memory. memcpy switches to `rep movsb` or to non-temporal stores at its
// own thresholds. If the lines of the destination are in the last-level cache, `rep movsb` and
// non-temporal stores run at half the speed or less.
#pragma once

#include <cstddef>

namespace pc {

// The ranges must not overlap. Any alignment is allowed. Without Highway it is memcpy.
void copy(std::byte* to, const std::byte* from, std::size_t nbytes);

// Like copy(), but with non-temporal stores, all of which are complete when it returns. For
// destinations that are in the cache of a distant core, where ordinary stores wait for each line.
void copy_past_caches(std::byte* to, const std::byte* from, std::size_t nbytes);

}  // namespace pc
