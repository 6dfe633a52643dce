// The exchange of a call with other hosts, with which this rank shares no memory. A rank exchanges
// the data of a round with other hosts before it passes the data on to the ranks of its own host. A
// small call is a single round.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "base/types.h"

namespace pc::shm {

// How the ranks of a host divide the array, so that all hosts cut it in the same way.
struct Division {
  // The number of slices: on every host, each of the first `slices` ranks combines one slice. 0:
  // all ranks combine, without an exchange.
  uint32_t slices = 0;
  Rank most = 0;  // the largest number of ranks on any host; rounds must suit all hosts
  // If the array has a part for each rank, this rank represents one part of each host: `parts`
  // parts in all. A round has a piece of each of them. For other arrays `parts` is 1.
  uint32_t parts = 1;
  // For a small call in one exchange: the rank, among those of this host, that combines the arrays
  // of the host and exchanges the result. -1: none.
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
  // Begins a round; rounds begin in the order 0, 1, ... The exchange makes the contents of `memory`
  // the same on all hosts. The memory must stay valid until take() has returned true for the round.
  virtual void exchange(uint32_t round, std::span<std::byte> memory) = 0;
  // Makes progress with all rounds. Returns whether `round`, which must be the oldest in flight, is
  // done. Returns true only once for a round.
  virtual Result<bool> take(uint32_t round) = 0;
  virtual void end(const Status& why) = 0;  // withdraws all rounds
  // `member`, a rank of this host, represents several parts of the array: parts_of() returns the
  // ranks of the group to which they belong. own_part() returns the index of this rank's own part
  // among those that this rank represents.
  virtual std::span<const Rank> parts_of(Rank member) const = 0;
  virtual std::size_t own_part() const = 0;
  virtual Rank waits_for() const = 0;  // the rank that the exchange waits for, as errors name it; -1: none
};

}  // namespace pc::shm
