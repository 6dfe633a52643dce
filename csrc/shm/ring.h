// The memory in which this rank writes messages that the other ranks read. It is used cyclically,
// so that a cache line is written again only after it has left the readers' caches: writing a line
// that another core holds is four times slower.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/round_up.h"

namespace pc::shm {

// Thread-safety: none; used only by the holder of the group's progress lock.
class Ring {
 public:
  static constexpr std::size_t kAlign = 128;
  static constexpr uint32_t kByCall = ~uint32_t{0};
  static constexpr std::size_t kMost = 48;  // entries; adjacent messages of small calls share one entry
  // How long the other ranks may read a message: until they have ended the call `sequence`, if
  // `round` is kByCall, otherwise until they have read the round `round` of that call.
  struct Use {
    uint64_t sequence = 0;
    uint32_t round = kByCall;
    uint8_t stream = 0;
  };

  void set_place(uint64_t begin, std::size_t nbytes) {  // call it once
    begin_ = begin;
    nbytes_ = nbytes;
  }

  // Reserves `nbytes`, which must be a fraction of the ring. Returns their position, or nullopt
  // while an earlier message in that memory may still be read. `is_free(use)` returns true if the
  // message with that use has been read.
  template <class IsFree>
  std::optional<uint64_t> take(std::size_t nbytes, const Use& use, IsFree&& is_free) {
    const std::size_t wanted = round_up(nbytes, kAlign);
    uint64_t begin = head_;
    if (begin % nbytes_ + wanted > nbytes_) begin += nbytes_ - begin % nbytes_;
    while (begin + wanted - tail_ > nbytes_ || newest_ - oldest_ == kept_.size()) {
      if (newest_ == oldest_) return std::nullopt;  // larger than the ring
      const Kept& first = kept_[oldest_ % kept_.size()];
      if (!is_free(first.use)) return std::nullopt;
      tail_ = first.end;
      ++oldest_;
    }
    keep(begin + wanted, use);
    return begin_ + begin % nbytes_;
  }

 private:
  struct Kept {
    uint64_t begin = 0, end = 0;
    Use use;
  };
  // A small call has many messages. Adjacent messages share one entry, which becomes free with its
  // last message.
  void keep(uint64_t end, const Use& use) {
    Kept& last = kept_[(newest_ - 1) % kept_.size()];
    const bool joins = newest_ != oldest_ && use.round == kByCall && last.use.round == kByCall &&
                       end - last.begin <= nbytes_ / 64;
    if (joins) {
      last.end = end;
      last.use = use;
    } else {
      kept_[newest_++ % kept_.size()] = {head_, end, use};
    }
    head_ = end;
  }
  uint64_t begin_ = 0, nbytes_ = 0;
  uint64_t head_ = 0, tail_ = 0;       // byte counters, not reduced modulo the size
  std::array<Kept, kMost> kept_ = {};  // the messages between tail_ and head_
  uint64_t oldest_ = 0, newest_ = 0;
};

}  // namespace pc::shm
