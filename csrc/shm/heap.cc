#include "shm/heap.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "base/byte_units.h"
#include "base/round_up.h"

namespace pc::shm {
namespace {

constexpr std::size_t kPieceNbytes = 64 * kMiB;
constexpr std::size_t kAlign = 128, kLargeAlign = 2 * kMiB;

bool is_inside(const std::byte* data, std::span<const std::byte> memory) {
  const std::less<const std::byte*> before;
  return !before(data, memory.data()) && before(data, memory.data() + memory.size());
}

}  // namespace

std::optional<std::size_t> Heap::take(Piece& piece, std::size_t nbytes, std::size_t alignment) {
  const uintptr_t base = reinterpret_cast<uintptr_t>(piece.memory.data());
  for (auto gap = piece.gaps.begin(); gap != piece.gaps.end(); ++gap) {
    const std::size_t begin = gap->first, end = begin + gap->second;
    const std::size_t at = round_up(base + begin, alignment) - base;
    if (at > end || end - at < nbytes) continue;
    piece.gaps.erase(gap);
    if (at != begin) piece.gaps.emplace(begin, at - begin);
    if (at + nbytes != end) piece.gaps.emplace(at + nbytes, end - at - nbytes);
    return at;
  }
  return std::nullopt;
}

Result<std::byte*> Heap::allocate(std::size_t nbytes) {
  if (nbytes > std::numeric_limits<std::size_t>::max() / 2)
    return Status(Code::kInvalidArgument, "an array of " + std::to_string(nbytes) + " bytes cannot be");
  const std::size_t wanted = round_up(std::max<std::size_t>(nbytes, 1), kAlign);
  const std::size_t alignment = wanted >= kLargeAlign ? kLargeAlign : kAlign;
  const std::lock_guard lock(mutex_);
  const auto take_from = [&](Piece& piece) -> std::byte* {
    const std::optional<std::size_t> at = take(piece, wanted, alignment);
    if (!at) return nullptr;
    std::byte* const memory = piece.memory.data() + *at;
    taken_.emplace(memory, wanted);
    usage_.used_nbytes += wanted;
    return memory;
  };
  for (Piece& piece : pieces_) {
    if (std::byte* const memory = take_from(piece); memory != nullptr) return memory;
  }
  const std::size_t more = std::max(kPieceNbytes, round_up(wanted, kLargeAlign) + kLargeAlign);
  PC_ASSIGN_OR_RETURN(const SharedRange range, local_peers_.grow(more));
  usage_.reserved_nbytes += range.memory.size();
  pieces_.push_back({range.offset, range.memory, {{0, range.memory.size()}}});
  return take_from(pieces_.back());
}

Heap::Piece* Heap::piece_of(const std::byte* data) {
  const auto found = std::find_if(pieces_.begin(), pieces_.end(),
                                  [&](const Piece& piece) { return is_inside(data, piece.memory); });
  return found == pieces_.end() ? nullptr : &*found;
}

void Heap::free(std::byte* memory) {
  const std::lock_guard lock(mutex_);
  const auto taken = taken_.find(memory);
  Piece* const piece = piece_of(memory);
  if (taken == taken_.end() || piece == nullptr) return;
  std::size_t begin = static_cast<std::size_t>(memory - piece->memory.data()), nbytes = taken->second;
  usage_.used_nbytes -= nbytes;
  taken_.erase(taken);
  const auto next = piece->gaps.lower_bound(begin);
  if (next != piece->gaps.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == begin) {
      begin = before->first;
      nbytes += before->second;
      piece->gaps.erase(before);
    }
  }
  if (next != piece->gaps.end() && begin + nbytes == next->first) {
    nbytes += next->second;
    piece->gaps.erase(next);
  }
  piece->gaps.emplace(begin, nbytes);
}

Heap::Usage Heap::usage() const {
  const std::lock_guard lock(mutex_);
  return usage_;
}

std::optional<HeapPlace> Heap::find(const std::byte* data, std::size_t nbytes) const {
  const std::lock_guard lock(mutex_);
  for (const Piece& piece : pieces_) {
    if (!is_inside(data, piece.memory)) continue;
    const std::size_t offset = static_cast<std::size_t>(data - piece.memory.data());
    if (nbytes > piece.memory.size() - offset) return std::nullopt;
    return HeapPlace{static_cast<uint32_t>(piece.offset / kPage),
                     static_cast<uint32_t>(piece.memory.size() / kPage), offset};
  }
  return std::nullopt;
}

}  // namespace pc::shm
