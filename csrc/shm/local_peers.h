// The ranks of this host that share memory with this rank. This object gives access to this rank's
// memory, which no other rank enlarges, to the memory of the other ranks, and to the notifier of
// each rank. A rank that maps the memory of another rank must trust no number in that memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "base/types.h"

namespace pc {

// A piece of one rank's shared memory. `offset` is the same for every rank, while addresses differ.
struct SharedRange {
  uint64_t offset = 0;
  std::span<std::byte> memory;
};

// Ranks are ranks of the world. Mappings stay valid until this object is destroyed. Thread-safety:
// all methods.
class LocalPeers {
 public:
  virtual ~LocalPeers() = default;
  virtual bool has(Rank rank) const = 0;  // also true for this rank itself
  // The size of the first piece of every rank's memory. That piece exists from the beginning, at
  // offset 0, and is zeros.
  static constexpr std::size_t kFirstNbytes = 64UL * 1024;
  // Enlarges this rank's memory by whole pages of zeros. The pages are allocated, so that touching
  // them cannot fail.
  virtual Result<SharedRange> grow(std::size_t nbytes) = 0;
  // Maps a piece of another rank's memory. Returns kMismatch if the memory that `rank` has now does
  // not contain the whole piece.
  virtual Result<std::span<std::byte>> map(Rank rank, uint64_t offset, std::size_t nbytes) = 0;
  // Makes notify_fd() of `rank` readable. Never blocks.
  virtual void notify(Rank rank) noexcept = 0;
  // Returns a descriptor that is readable (epoll) from a notification until clear_notification().
  virtual int notify_fd() const = 0;
  virtual bool clear_notification() noexcept = 0;  // returns false if there was no notification
  // For a forked child: closes every descriptor and touches nothing shared; no other call may
  // follow.
  virtual void close_in_child() noexcept = 0;
};

}  // namespace pc
