// The copy in Google Highway. This file includes itself, so that it is compiled once per
// instruction set. Without Highway it is empty.
#ifdef PYCOLLECTIVE_HAVE_HIGHWAY
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/copy_impl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/copy_highway.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pc {
namespace HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

CopyTarget target_copy() { return {}; }  // memcpy is used instead
#else
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t kLine = 64;

// If the size is not a multiple of a piece, the last piece overlaps the piece before it. This
// avoids a loop over the remainder.
template <std::size_t size>
HWY_INLINE void two_moves(uint8_t* to, const uint8_t* from, std::size_t nbytes) {
  uint8_t first[size], last[size];
  std::memcpy(first, from, size);
  std::memcpy(last, from + nbytes - size, size);
  std::memcpy(to, first, size);
  std::memcpy(to + nbytes - size, last, size);
}
template <class D>
HWY_INLINE void two_vectors(D d, uint8_t* to, const uint8_t* from, std::size_t nbytes) {
  const std::size_t last = nbytes - hn::Lanes(d);
  const auto x = hn::LoadU(d, from), y = hn::LoadU(d, from + last);
  hn::StoreU(x, d, to);
  hn::StoreU(y, d, to + last);
}
template <class D>
HWY_INLINE void four_vectors(D d, uint8_t* to, const uint8_t* from) {
  const std::size_t n = hn::Lanes(d);
  const auto x = hn::LoadU(d, from), y = hn::LoadU(d, from + n);
  const auto z = hn::LoadU(d, from + 2 * n), w = hn::LoadU(d, from + 3 * n);
  hn::StoreU(x, d, to);
  hn::StoreU(y, d, to + n);
  hn::StoreU(z, d, to + 2 * n);
  hn::StoreU(w, d, to + 3 * n);
}

// Copies fewer bytes than a vector has.
HWY_INLINE void copy_few(uint8_t* to, const uint8_t* from, std::size_t nbytes) {
  if (nbytes > 64) return void(std::memcpy(to, from, nbytes));  // only with the longest existing vectors
  if (nbytes >= 32) return two_vectors(hn::CappedTag<uint8_t, 32>(), to, from, nbytes);
  if (nbytes >= 16) return two_vectors(hn::CappedTag<uint8_t, 16>(), to, from, nbytes);
  if (nbytes >= 8) return two_moves<8>(to, from, nbytes);
  if (nbytes >= 4) return two_moves<4>(to, from, nbytes);
  if (nbytes >= 2) return two_moves<2>(to, from, nbytes);
  if (nbytes == 1) *to = *from;
}

void run(std::byte* to_bytes, const std::byte* from_bytes, std::size_t nbytes) {
  const hn::ScalableTag<uint8_t> d;
  uint8_t* const to = reinterpret_cast<uint8_t*>(to_bytes);
  const uint8_t* const from = reinterpret_cast<const uint8_t*>(from_bytes);
  const std::size_t n = hn::Lanes(d);
  if (nbytes < n) return copy_few(to, from, nbytes);
  if (nbytes <= 2 * n) return two_vectors(d, to, from, nbytes);
  if (nbytes <= 4 * n) {
    two_vectors(d, to, from, 2 * n);
    return two_vectors(d, to + nbytes - 2 * n, from + nbytes - 2 * n, 2 * n);
  }
  // Continues at the first aligned vector of the destination, because a store across two cache
  // lines costs as much as two stores.
  hn::StoreU(hn::LoadU(d, from), d, to);
  std::size_t i = n - reinterpret_cast<uintptr_t>(to) % n;
  for (; nbytes - i > 4 * n; i += 4 * n) four_vectors(d, to + i, from + i);
  four_vectors(d, to + nbytes - 4 * n, from + nbytes - 4 * n);
}

void run_past_caches(std::byte* to_bytes, const std::byte* from_bytes, std::size_t nbytes) {
  const hn::ScalableTag<uint8_t> d;
  const std::size_t n = hn::Lanes(d);
  const std::size_t line = std::max(kLine, n);
  if (nbytes < 4 * line) return run(to_bytes, from_bytes, nbytes);
  uint8_t* const to = reinterpret_cast<uint8_t*>(to_bytes);
  const uint8_t* const from = reinterpret_cast<const uint8_t*>(from_bytes);
  // Streams whole lines only: a partial line would wait in a write buffer for the rest.
  const std::size_t head = (line - reinterpret_cast<uintptr_t>(to) % line) % line;
  const std::size_t end = head + (nbytes - head) / line * line;
  run(to_bytes, from_bytes, head);
  for (std::size_t i = head; i < end; i += n) hn::Stream(hn::LoadU(d, from + i), d, to + i);
  hwy::FlushStream();
  run(to_bytes + end, from_bytes + end, nbytes - end);
}

CopyTarget target_copy() { return {{}, &run, &run_past_caches}; }

#endif  // a target with vectors
}  // namespace HWY_NAMESPACE
}  // namespace pc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pc {

HWY_EXPORT(target_copy);

std::vector<CopyTarget> highway_copy_targets() {
  std::vector<CopyTarget> found;
  const std::vector<int64_t> best_first = hwy::SupportedAndGeneratedTargets();
  for (std::size_t i = best_first.size(); i-- > 0;) {
    hwy::ChosenTarget chosen;  // a separate instance; see reduce_highway.cc
    chosen.Update(best_first[i]);
    constexpr bool kOnlyOne = (HWY_TARGETS & (HWY_TARGETS - 1)) == 0;
    const CopyTarget target = HWY_DISPATCH_TABLE(target_copy)[kOnlyOne ? 0 : chosen.GetIndex()]();
    if (target.copy != nullptr)
      found.push_back({hwy::TargetName(best_first[i]), target.copy, target.past_caches});
  }
  return found;
}

}  // namespace pc
#endif  // HWY_ONCE
#endif  // PYCOLLECTIVE_HAVE_HIGHWAY
