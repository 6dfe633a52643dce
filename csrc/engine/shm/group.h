// How the ranks of one group communicate through shared memory. Each member has two slots, and
// announces its calls in them alternately.
//
//   A rank announces a call only when all members have announced the call that this rank announced
//   last, or a later one. So no rank still reads the slot that the announcement overwrites. While a
//   rank is in a call, its announcement of that call does not change.
//
// Therefore a small call needs only one exchange of slots. A rank need not announce a call that
// runs as a plan, or that it has already given up.
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

// A member announced a different call than this rank under number `sequence`. This rank did not
// have to compare the two at that time.
struct LateMismatch {
  uint64_t sequence;
  Rank world;
  Status why;
};

// Thread-safety: none; only the holder of the group's progress lock uses it. Methods that return
// false, nullopt or kNothing have recorded in awaited() what they wait for.
class Group : public Members {
 public:
  Group(Host& host, uint32_t group, Rank rank, std::span<const Rank> world_ranks, const Limits& limits,
        std::vector<Rank> names = {})
      : Members(host, group, rank, world_ranks, std::move(names)),
        limits_(limits) {}

  const Limits& limits() const { return limits_; }

  // Creates the rings. Call it before the first allocate(). Calls after a success return OK and do
  // nothing.
  Status make_rings();
  // Returns the position for a message in the ring of its stream. Results have a ring of their own,
  // because inputs are freed only after results have been written.
  std::optional<uint64_t> allocate(std::size_t nbytes, const Ring::Use& use) {
    return rings_[use.stream].take(nbytes, use, [this](const Ring::Use& old) { return is_free(old); });
  }
  std::byte* at(uint64_t position) const { return memory_.data() + position; }

  uint64_t announced() const { return announced_; }
  // Returns true if this rank can announce call `sequence`, because all members have announced this
  // rank's last call or a later one.
  bool catch_up(uint64_t sequence);
  // Like catch_up(), but for the rank that leads a call and announces it after all other ranks.
  // After it has returned true, look() returns what the other ranks have announced for the call.
  bool catch_up_to_lead(uint64_t sequence, uint32_t fingerprint);
  // payload of the next announcement; valid after catch_up()
  std::byte* payload() { return own_->slots[next_].payload; }
  void announce(uint64_t sequence, uint32_t fingerprint);  // after catch_up() and payload()

  // Gives up the last announced call. From now on this rank reads and compares nothing of that
  // call.
  void give_up();

  enum class Seen : uint8_t { kSame, kNothing, kOther };
  // Compares a member's announcement with this rank's call: the call that this rank announced last
  // or, after catch_up_to_lead(), the call that it leads.
  Seen look(Rank peer);
  // Both are valid after look(peer) has found an announcement.
  uint32_t fingerprint_of(Rank peer) const;
  const std::byte* inline_message(Rank peer) const {
    return peers_[index(peer)].area->slots[peers_[index(peer)].slot].payload;
  }
  // Returns the message at `place` in a member's ring. Returns null and sets `why` if there can be
  // no message at that place.
  const std::byte* message(Rank peer, const Place& place, Status& why);
  Place place_of(Rank peer) const;
  void all_have_announced() { all_announced_ = compared_ = announced_; }

  CopyPathTuner& copy_paths() { return copy_paths_; }
  // Returns false if that member has given the call up. If it returns true, everything read so far
  // from the member's exposed arrays is valid.
  bool stays_exposed(Rank peer);
  bool await_change(Rank peer);  // waits until that member gives the call up; returns false
  // set_done() announces that this rank needs nothing more of the other ranks' arrays in the last
  // announced call. is_done() returns whether `peer` has announced this.
  void set_done();
  bool is_done(Rank peer);

  // ---- streams
  //
  // Returns whether the stream entry of that round can be overwritten. allocate() ensures this for
  // messages in a ring, but messages in exposed arrays need this check.
  bool has_entry(StreamKind kind, uint32_t round) {
    return round < Ring::kMost || is_free({announced_, round - static_cast<uint32_t>(Ring::kMost), kind});
  }
  void publish(StreamKind kind, uint32_t round, uint64_t position);
  // Returns the position of that round's message in a member's ring, or nullopt if the member has
  // not published it yet.
  std::optional<uint64_t> published(Rank peer, StreamKind kind, uint64_t base, uint32_t round);
  // announces how many rounds of the last announced call this rank has read
  void set_read(StreamKind kind, uint32_t rounds);
  // From `from_round` on, is_free() returns false for the rounds of the last announced call even if
  // all members have read them: other hosts still read and write the memory of these rounds. This
  // lasts until the call is given up or another call is announced.
  void hold(StreamKind kind, uint32_t from_round) { held_[kind] = from_round; }
  uint64_t stream_base(StreamKind kind) const { return count_[kind]; }

  std::vector<LateMismatch> take_late_mismatches() { return std::exchange(late_mismatches_, {}); }

 private:
  // A stream has at most Ring::kMost messages in the ring and as many in exposed arrays, so no
  // entry is overwritten while a rank reads it.
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
  uint64_t announced_ = 0;      // number of the call that this rank announced last
  uint32_t fingerprint_ = 0;    // fingerprint of that announcement; kVoid once the call was given up
  Announcement sought_;         // the call with which look() compares
  uint8_t next_ = 1;            // the slot that is written next
  uint64_t all_announced_ = 0;  // all members have announced this call, or a later one
  uint64_t compared_ = 0;       // calls up to this number have been compared or need not be
  uint64_t count_[2] = {};      // messages published in each stream
  uint64_t read_[2] = {};       // by StreamKind: the word that set_read() stored last
  std::vector<LateMismatch> late_mismatches_;
  uint32_t held_[2] = {kAllRounds, kAllRounds};  // by StreamKind: the first round that is held
};

inline constexpr uint32_t kVoid = 0;  // the fingerprint of a call that a rank gave up or did not make
uint32_t fingerprint_of(uint64_t digest);

}  // namespace pc::shm
