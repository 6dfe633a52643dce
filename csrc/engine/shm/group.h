// What the ranks of one group tell each other through shared memory: of each member two slots, which take
// turns. A member announces a call in the slot that it has not written last.
//
//   A rank announces a call only when all members have announced the one that it announced last, or a later one; so no rank
//   reads any more what stands in the slot that it overwrites. While a rank is in a call, what it has
//   announced for that stays.
//
// So one exchange of slots is all that a small call needs. Calls that are not made here (plans run them), and
// calls that others gave up, leave no trace in the slots.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/request.h"
#include "engine/shm/copy_path_tuner.h"
#include "engine/shm/limits.h"
#include "engine/shm/members.h"
#include "shm/ring.h"

namespace pc::shm {

// A member's earlier call was another one than this rank's, which had not to look.
struct LateMismatch {
  uint64_t sequence;
  Rank world;
  Status why;
};

// Thread-safety: none; the holder of the group's progress lock. Methods that return false, nullopt or
// kNothing have noted in awaited() what they wait for.
class Group : public Members {
 public:
  Group(Host& host, uint32_t group, Rank rank, std::span<const Rank> world_ranks, const Limits& limits,
        std::vector<Rank> names = {})
      : Members(host, group, rank, world_ranks, std::move(names)),
        limits_(limits) {}

  const Limits& limits() const { return limits_; }

  // Before the first allocate(), once; then it is OK for good.
  Status make_rings();
  // Where a message of that kind is written, by its position. Results have a ring of their own: they are what frees inputs.
  std::optional<uint64_t> allocate(std::size_t nbytes, const Ring::Use& use) {
    return rings_[use.stream].take(nbytes, use, [this](const Ring::Use& old) { return is_free(old); });
  }
  std::byte* at(uint64_t position) const { return memory_.data() + position; }

  uint64_t announced() const { return announced_; }
  // Whether that call can be announced. False: not all are there yet.
  bool catch_up(uint64_t sequence);
  // The same for the rank that leads a call and announces it when all others have: it can look() at what they announce.
  bool catch_up_to_lead(uint64_t sequence, uint32_t fingerprint);
  std::byte* payload() { return own_->slots[next_].payload; }  // of the next announcement; after catch_up()
  void announce(uint64_t sequence, uint32_t fingerprint);      // after catch_up(), and payload()

  // Nothing more of the last announced call is read or compared here.
  void give_up();

  enum class Seen : uint8_t { kSame, kNothing, kOther };
  // What a member has announced for the call that this rank has announced last, or looks for.
  Seen look(Rank peer);
  // Once it is there.
  uint32_t fingerprint_of(Rank peer) const;
  const std::byte* inline_message(Rank peer) const {
    return peers_[index(peer)].area->slots[peers_[index(peer)].slot].payload;
  }
  // A message in a member's ring. Null: it cannot be there, and `why` says so.
  const std::byte* message(Rank peer, const Place& place, Status& why);
  Place place_of(Rank peer) const;
  void all_have_announced() { all_announced_ = compared_ = announced_; }

  CopyPathTuner& copy_paths() { return copy_paths_; }
  // Whether that member still stands to its arrays: what was read there before is right.
  bool stays_exposed(Rank peer);
  bool await_change(Rank peer);  // false: it has given the call up, or will
  // This rank needs nothing more of the others' arrays in the last announced call.
  void set_done();
  bool is_done(Rank peer);

  // ---- streams
  // Whether the entry of that round can be written: where messages lie in arrays no ring sees to that.
  bool has_entry(StreamKind kind, uint32_t round) {
    return round < Ring::kMost || is_free({announced_, round - static_cast<uint32_t>(Ring::kMost), kind});
  }
  void publish(StreamKind kind, uint32_t round, uint64_t position);
  // Where the message of that round is in a member's ring. nullopt: not yet.
  std::optional<uint64_t> published(Rank peer, StreamKind kind, uint64_t base, uint32_t round);
  void set_read(StreamKind kind, uint32_t rounds);  // of the last announced call
  // In the last announced call, rounds from there on are nobody else's yet: other hosts read and write their memory, whatever
  // the members have read. Until the call is given up or another one is announced.
  void hold(StreamKind kind, uint32_t from_round) { held_[kind] = from_round; }
  uint64_t stream_base(StreamKind kind) const { return count_[kind]; }

  std::vector<LateMismatch> take_late_mismatches() { return std::exchange(late_mismatches_, {}); }

 private:
  // More messages than that are never in the ring of a stream and exposed, so no entry is written again
  // while somebody looks at it.
  static_assert(2 * Ring::kMost < kEntries);
  bool have_announced(uint64_t sequence);
  bool has_announced_after(Rank peer, uint64_t sequence) const;
  uint64_t newest_before(uint64_t sequence) const;
  bool wait_for_slot(Rank peer, std::size_t slot, uint64_t word, uint64_t other);
  void compare_last();
  bool is_free(const Ring::Use& use);
  bool is_held(const Ring::Use& use) const {
    return use.sequence == announced_ && use.round != Ring::kByCall && use.round >= held_[use.stream];
  }
  void hold_nothing() { held_[kInputs] = held_[kResults] = kAllRounds; }

  const Limits limits_;
  std::span<std::byte> memory_ = {};  // of the rings
  Ring rings_[2];                     // by StreamKind
  CopyPathTuner copy_paths_;
  struct Announcement {
    uint64_t sequence = 0;
    uint32_t fingerprint = 0;
  };
  uint64_t announced_ = 0;      // this rank's last number
  uint32_t fingerprint_ = 0;    // and what it was; void, once it was given up
  Announcement sought_;         // what look() compares with
  uint8_t next_ = 1;            // the slot that is written next
  uint64_t all_announced_ = 0;  // one that all have announced, or a later one
  uint64_t compared_ = 0;       // and the last whose fingerprints were compared, or need not be
  uint64_t count_[2] = {};      // of messages published in each stream
  uint64_t read_[2] = {};       // what this rank has said of its reading
  std::vector<LateMismatch> late_mismatches_;
  uint32_t held_[2] = {kAllRounds, kAllRounds};  // from which round on, by StreamKind
};

inline constexpr uint32_t kVoid = 0;  // the fingerprint of a call that this rank did not make
uint32_t fingerprint_of(uint64_t digest);

}  // namespace pc::shm
