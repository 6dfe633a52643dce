// The ranks of this host that share memory with this one, as one of them sees them: its own memory, which it alone makes
// larger, the others' memory, and a notifier for each. Whoever maps what another rank published trusts no
// number in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "base/types.h"

namespace pc {

// A piece of one rank's shared memory. `offset` means the same to everybody.
struct SharedRange {
  uint64_t offset = 0;
  std::span<std::byte> memory;
};

// Ranks are ranks of the world. Everything that is mapped stays until this goes. Thread-safety: all methods.
class LocalPeers {
 public:
  virtual ~LocalPeers() = default;
  virtual bool has(Rank rank) const = 0;  // this rank itself included
  // The first piece of everybody's memory is there from the beginning: zeros, at offset 0.
  static constexpr std::size_t kFirstNbytes = 64UL * 1024;
  // More own memory: whole pages of zeros that are there, so that touching them cannot fail.
  virtual Result<SharedRange> grow(std::size_t nbytes) = 0;
  // A piece of another rank's memory. It must lie inside what that rank has now, else kMismatch.
  virtual Result<std::span<std::byte>> map(Rank rank, uint64_t offset, std::size_t nbytes) = 0;
  // Makes that rank's notify_fd() readable. Never blocks.
  virtual void notify(Rank rank) noexcept = 0;
  // Readable (epoll) once somebody has notified, until clear_notification().
  virtual int notify_fd() const = 0;
  virtual bool clear_notification() noexcept = 0;  // false: nobody had
  // In a forked child: closes every descriptor, touches nothing shared; nothing may follow.
  virtual void close_in_child() noexcept = 0;
};

}  // namespace pc
