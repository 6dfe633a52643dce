// How the ranks of one group communicate through shared memory. Each member has two slots and
// announces a call in the slot that it has not written last.
//
//   A rank announces a call only when all members have announced the call that it announced last,
//   or a later one; so no rank still reads the slot that it overwrites. While a rank is in a call,
//   what it has announced for that call does not change.
//
// So a small call needs only one exchange of slots. Calls that do not run here (plans run them),
// and calls that other ranks gave up, leave no trace in the slots.
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

// A member's earlier call differed from this rank's, which did not have to check it then.
struct LateMismatch {
  uint64_t sequence;
  Rank world;
  Status why;
};

// Thread-safety: none; the holder of the group's progress lock. Methods that return false, nullopt
// or kNothing have recorded in awaited() what they wait for.
class Group : public Members {
 public:
  Group(Host& host, uint32_t group, Rank rank, std::span<const Rank> world_ranks, const Limits& limits,
        std::vector<Rank> names = {})
      : Members(host, group, rank, world_ranks, std::move(names)),
        limits_(limits) {}

  const Limits& limits() const { return limits_; }

  // Call it before the first allocate(). After it has succeeded once it does nothing and returns
  // OK.
  Status make_rings();
  // Returns the position for a message of that kind. Results have a ring of their own, because
  // inputs are freed only after results have been written.
  std::optional<uint64_t> allocate(std::size_t nbytes, const Ring::Use& use) {
    return rings_[use.stream].take(nbytes, use, [this](const Ring::Use& old) { return is_free(old); });
  }
  std::byte* at(uint64_t position) const { return memory_.data() + position; }

  uint64_t announced() const { return announced_; }
  // Returns whether that call can be announced. Returns false if some member has not announced this
  // rank's last call yet.
  bool catch_up(uint64_t sequence);
  // Like catch_up(), for the rank that leads a call and announces it after all other ranks:
  // afterwards look() reports what they have announced.
  bool catch_up_to_lead(uint64_t sequence, uint32_t fingerprint);
  // of the next announcement; valid after catch_up()
  std::byte* payload() { return own_->slots[next_].payload; }
  void announce(uint64_t sequence, uint32_t fingerprint);  // after catch_up() and payload()

  // From now on this rank reads and compares nothing of the last announced call.
  void give_up();

  enum class Seen : uint8_t { kSame, kNothing, kOther };
  // Returns what a member has announced for the call that this rank announced last or is looking
  // for.
  Seen look(Rank peer);
  // Both are valid once the member has announced the call.
  uint32_t fingerprint_of(Rank peer) const;
  const std::byte* inline_message(Rank peer) const {
    return peers_[index(peer)].area->slots[peers_[index(peer)].slot].payload;
  }
  // Returns a message in a member's ring. Returns null and sets `why` if there can be none at
  // `place`.
  const std::byte* message(Rank peer, const Place& place, Status& why);
  Place place_of(Rank peer) const;
  void all_have_announced() { all_announced_ = compared_ = announced_; }

  CopyPathTuner& copy_paths() { return copy_paths_; }
  // Returns whether that member still exposes its arrays: what was read from them before is valid.
  bool stays_exposed(Rank peer);
  bool await_change(Rank peer);  // returns false: that member has given the call up, or will
  // set_done() announces that this rank needs nothing more of the other ranks' arrays in the last
  // announced call.
  void set_done();
  bool is_done(Rank peer);

  // ---- streams
  //
  // Returns whether the entry of that round can be written. For messages in exposed arrays no ring
  // ensures that.
  bool has_entry(StreamKind kind, uint32_t round) {
    return round < Ring::kMost || is_free({announced_, round - static_cast<uint32_t>(Ring::kMost), kind});
  }
  void publish(StreamKind kind, uint32_t round, uint64_t position);
  // Returns the position of that round's message in a member's ring, or nullopt if it has not been
  // published yet.
  std::optional<uint64_t> published(Rank peer, StreamKind kind, uint64_t base, uint32_t round);
  void set_read(StreamKind kind, uint32_t rounds);  // rounds of the last announced call
  // In the last announced call, rounds from there on belong to this rank alone: other hosts read
  // and write their memory, whatever the members have read. Lasts until the call is given up or
  // another call is announced.
  void hold(StreamKind kind, uint32_t from_round) { held_[kind] = from_round; }
  uint64_t stream_base(StreamKind kind) const { return count_[kind]; }

  std::vector<LateMismatch> take_late_mismatches() { return std::exchange(late_mismatches_, {}); }

 private:
  // A stream never has more messages than that in the ring and exposed, so no entry is overwritten
  // while a rank reads it.
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
  uint64_t announced_ = 0;      // number of this rank's last announcement
  uint32_t fingerprint_ = 0;    // fingerprint of that announcement; kVoid once the call was given up
  Announcement sought_;         // what look() compares with
  uint8_t next_ = 1;            // the slot that is written next
  uint64_t all_announced_ = 0;  // all members have announced this call, or a later one
  uint64_t compared_ = 0;       // fingerprints up to this call were compared or need not be
  uint64_t count_[2] = {};      // messages published in each stream
  uint64_t read_[2] = {};       // what this rank has published of its reading
  std::vector<LateMismatch> late_mismatches_;
  uint32_t held_[2] = {kAllRounds, kAllRounds};  // by StreamKind: the first round that is held
};

inline constexpr uint32_t kVoid = 0;  // the fingerprint of a call that this rank did not make
uint32_t fingerprint_of(uint64_t digest);

}  // namespace pc::shm
