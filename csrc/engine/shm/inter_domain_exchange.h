// The exchange of a call with ranks that share no memory with this one. Before a rank passes on
// what it has for a round, it exchanges it with those ranks. A small call is a single round.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "base/types.h"

namespace pc::shm {

// How the ranks that share memory divide the array, so that the ranks of other hosts cut it in the
// same way.
struct Division {
  uint32_t slices =
      0;          // each combined by one of the first ranks; 0: all ranks combine, and there is no exchange
  Rank most = 0;  // largest number of ranks that share memory on any host: rounds must suit all
  // If each rank has a part: this rank represents this many parts, one of each host, and a round
  // has a piece of each. Otherwise 1.
  uint32_t parts = 1;
  // For a small call in one exchange: the rank of those that share memory that combines what they
  // have and exchanges that. -1: none.
  Rank leader = -1;
  bool operator==(const Division&) const = default;
};

// The exchange of one call. Thread-safety: that of the run, except where a method says otherwise.
class InterDomainExchange {
 public:
  virtual ~InterDomainExchange() = default;
  InterDomainExchange() = default;
  InterDomainExchange(const InterDomainExchange&) = delete;
  InterDomainExchange& operator=(const InterDomainExchange&) = delete;

  virtual bool has_capacity() const = 0;  // for one more round in flight
  virtual bool is_active() const = 0;     // a round is in flight
  // Begins round 0, 1, ...: makes the contents of `memory` the same on all hosts. The memory must
  // stay valid until that is done.
  virtual void exchange(uint32_t round, std::span<std::byte> memory) = 0;
  // Makes progress with all rounds. Returns whether that round, the oldest one, is done; true is
  // returned once.
  virtual Result<bool> take(uint32_t round) = 0;
  virtual void end(const Status& why) = 0;  // withdraws everything
  // parts_of(): `member` shares memory with this rank and represents the parts of these ranks.
  // own_part(): the index of this rank's own part among those that it represents.
  virtual std::span<const Rank> parts_of(Rank member) const = 0;
  virtual std::size_t own_part() const = 0;
  virtual Rank waits_for() const = 0;  // as errors name it; -1: none
};

}  // namespace pc::shm
