#include "engine/bind.h"

#include <algorithm>
#include <new>

namespace pc {
namespace {
constexpr std::size_t kAlign = 64;
}

Geometry::Geometry(std::size_t count, std::size_t element_nbytes, uint32_t chunks) {
  if (chunks == 0) return;
  total_nbytes_ = count * element_nbytes;
  // Every element size divides 64, so rounding bytes never cuts an element.
  const std::size_t even =
      chunks == 1 ? total_nbytes_ : total_nbytes_ / chunks + (total_nbytes_ % chunks != 0);
  chunk_nbytes_ = (even + kAlign - 1) / kAlign * kAlign;
}

ByteRange Geometry::of(Chunks chunks) const {
  const std::size_t from = std::min(chunks.first * chunk_nbytes_, total_nbytes_);
  const std::size_t to = std::min((std::size_t{chunks.first} + chunks.count) * chunk_nbytes_, total_nbytes_);
  return {from, to - from};
}

void Scratch::Free::operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{kAlign}); }

std::byte* Scratch::reserve(std::size_t nbytes) {
  if (nbytes > capacity_ || !memory_) {
    memory_.reset();  // first, so that both never exist together
    capacity_ = 0;
    const std::size_t wanted = std::max(nbytes, kAlign);
    memory_.reset(static_cast<std::byte*>(::operator new[](wanted, std::align_val_t{kAlign}, std::nothrow)));
    if (!memory_) return nullptr;
    capacity_ = wanted;
  }
  return memory_.get();
}

}  // namespace pc
