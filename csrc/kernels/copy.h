// A copy by ordinary vector loads and stores at every size: into memory that other cores read, such as a ring in shared
// memory. memcpy goes over to `rep movsb` or to stores past the caches at sizes of its own choosing; where the lines of
// the destination lie in the last-level cache, those are half as fast or less.
#pragma once

#include <cstddef>

namespace pc {

// The ranges must not overlap. Any alignment. Without Highway it is memcpy.
void copy(std::byte* to, const std::byte* from, std::size_t nbytes);

// The same with stores that go past the caches, finished when it returns. Where another core's cache holds the lines of the
// destination and is far away, ordinary stores wait for each of them.
void copy_past_caches(std::byte* to, const std::byte* from, std::size_t nbytes);

}  // namespace pc
