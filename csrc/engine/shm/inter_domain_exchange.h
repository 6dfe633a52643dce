// What a call has to do with ranks that share no memory with this one. Before a rank passes on what it has for a round, it
// exchanges it with those ranks. A small call is a single round.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "base/types.h"

namespace pc::shm {

// How the ranks that share memory divide the array, so that those of other hosts cut it the same way.
struct Division {
  uint32_t slices =
      0;  // combined by as many ranks, the first ones; 0: by all of them, and nobody exchanges anything
  Rank most = 0;  // ranks that share memory anywhere: rounds must suit all
  // Where each rank has a part: it stands here for so many parts, one of each host, and a round has a piece of each. Else 1.
  uint32_t parts = 1;
  // A small call, in one exchange: this one of the ranks that share memory combines what they have, and exchanges that. -1: none.
  Rank leader = -1;
  bool operator==(const Division&) const = default;
};

// Of one call. Thread-safety: the run's, except where a method says otherwise.
class InterDomainExchange {
 public:
  virtual ~InterDomainExchange() = default;
  InterDomainExchange() = default;
  InterDomainExchange(const InterDomainExchange&) = delete;
  InterDomainExchange& operator=(const InterDomainExchange&) = delete;

  virtual bool has_capacity() const = 0;  // for one more round at once
  virtual bool is_active() const = 0;     // something is on its way
  // Begins with round 0, 1, ...: what is in `memory` becomes what it is everywhere. It stays there until that is done.
  virtual void exchange(uint32_t round, std::span<std::byte> memory) = 0;
  // Goes on with all. Whether that round, the oldest, is done, which it says once.
  virtual Result<bool> take(uint32_t round) = 0;
  virtual void end(const Status& why) = 0;  // withdraws everything
  // Whose parts a rank that shares memory with this one stands for, and which of them is its own.
  virtual std::span<const Rank> parts_of(Rank member) const = 0;
  virtual std::size_t own_part() const = 0;
  virtual Rank waits_for() const = 0;  // as errors call it; -1: nobody
};

}  // namespace pc::shm
