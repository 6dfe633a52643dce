// What the ranks of one group tell each other through shared memory: of each member two lines, which take turns. A member
// announces a call in the line that it has not written last.
//
//   A rank announces a call only when all members have announced the one that it announced last, or a later one; so nobody
//   reads any more what stands in the line that it overwrites. While it is in a call, nobody overwrites what he has announced
//   for that.
//
// So one exchange of lines is all that a small call needs. Calls that are not made here (plans run them), and calls that others
// gave up, leave no trace in the lines.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/request.h"
#include "engine/shm/host.h"
#include "engine/shm/limits.h"
#include "engine/shm/ways.h"
#include "shm/ring.h"
#include "shm/shared_copy.h"

namespace pc::shm {

// A word that has to change before it makes sense to look again.
struct Awaited {
  const std::atomic<uint64_t>* word;
  uint64_t seen;
  Rank peer;  // in the group
  bool has_changed() const { return word->load(std::memory_order_seq_cst) != seen; }
};

// A member's earlier call was another one than this rank's, which had not to look.
struct Stray {
  uint64_t sequence;
  Rank world;
  Status why;
};

// Thread-safety: none; the holder of the group's baton. Methods that return false, nullopt or kNothing have noted in awaited()
// what they wait for.
class Group {
 public:
  // `names`: what errors call the members; empty: their ranks.
  Group(Host& host, uint32_t group, Rank rank, std::span<const Rank> world_ranks, const Limits& limits,
        std::vector<Rank> names = {});

  Rank size() const { return static_cast<Rank>(peers_.size()); }
  const Limits& limits() const { return limits_; }

  // Nothing of the group is read or announced here any more. Once, last of all.
  void close();

  // Finds the areas of all members, and out whether all can read each other's private memory. Once; then it is true for good.
  Result<bool> join();
  bool is_joined() const { return agreed_ == peers_.size(); }
  bool reads_private_memory() const { return reads_all_; }

  // Before the first room(), once; then it is OK for good.
  Status make_rings();
  // Room for a message of that kind, by its position. Results have a ring of their own: they are what frees inputs.
  std::optional<uint64_t> room(std::size_t nbytes, const Ring::Use& use) {
    return rings_[use.stream].take(nbytes, use, [this](const Ring::Use& old) { return is_free(old); });
  }
  std::byte* at(uint64_t position) const { return memory_.data() + position; }

  // Nothing more comes from that rank of the world. Thread-safety: from anywhere.
  void note_left(Rank world);
  bool has_left(Rank peer) const { return left_[index(peer)].load(std::memory_order_seq_cst); }

  uint64_t announced() const { return announced_; }
  // Whether that call can be announced. False: not everybody is there yet.
  bool catch_up(uint64_t sequence);
  // The same for who leads a call, and announces it when all others have: he can look() at what they announce for it.
  bool catch_up_to_lead(uint64_t sequence, uint32_t fingerprint);
  std::byte* payload() { return own_->lines[next_].payload; }  // of the next announcement; after catch_up()
  void announce(uint64_t sequence, uint32_t fingerprint);      // after catch_up(), and payload()

  // Nothing more of the last announced call is read or compared here.
  void give_up();

  enum class Seen : uint8_t { kSame, kNothing, kOther };
  // What a member has announced for the call that this rank has announced last, or looks for.
  Seen look(Rank peer);
  // Once it is there.
  uint32_t fingerprint_of(Rank peer) const;
  const std::byte* inline_message(Rank peer) const {
    return peers_[index(peer)].area->lines[peers_[index(peer)].line].payload;
  }
  // A message in a member's ring. Null: it cannot be there, and `why` says so.
  const std::byte* message(Rank peer, const Place& place, Status& why);
  Place place_of(Rank peer) const;
  void everybody_is_here() { everybody_ = compared_ = announced_; }

  // Where a member's array lies. An error: it cannot be there.
  Result<const std::byte*> array(Rank peer, const HeapPlace& place, std::size_t nbytes) {
    return host_.find_array(peers_[index(peer)].world, place, nbytes);
  }
  // A member's private memory.
  Status read(Rank peer, uint64_t address, std::span<std::byte> into) const {
    return host_.read(peers_[index(peer)].world, address, into);
  }
  Ways& ways() { return ways_; }
  // How to copy into the ring for that member, or, if it is this rank, for all. Some may be far away, and others near.
  SharedCopy& copy_for(Rank reader) { return peers_[index(reader)].copy; }
  Stores stores_for_all() const;
  // Whether that member still stands to its arrays: what was read there before is right.
  bool stands(Rank peer);
  bool await_news(Rank peer);  // false: it has given the call up, or will
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

  std::vector<Awaited>& awaited() { return awaited_; }
  std::vector<Stray> take_strays() { return std::exchange(strays_, {}); }

 private:
  void wake_all();
  bool agree();
  // More messages than that are never in the ring of a stream and lent, so no entry is written again
  // while somebody looks at it.
  static_assert(2 * Ring::kMost < kEntries);
  struct Peer {
    Rank world;
    const GroupArea* area = nullptr;
    Host::FoundArea found = {};
    std::span<const std::byte> ring = {};
    uint8_t line = 0;      // where look() has found what was looked for
    SharedCopy copy = {};  // into the ring, for it alone; its own: for all
  };
  std::string who(Rank rank) const {
    return "rank " + std::to_string(names_.empty() ? rank : names_[index(rank)]);
  }
  Rank named(Rank rank) const { return names_.empty() ? rank : names_[index(rank)]; }
  static std::size_t index(Rank rank) { return static_cast<std::size_t>(rank); }
  bool have_announced(uint64_t sequence);
  bool has_announced_after(Rank peer, uint64_t sequence) const;
  uint64_t newest_before(uint64_t sequence) const;
  bool wait_for_line(Rank peer, std::size_t line, uint64_t word, uint64_t other);
  void compare_last();
  bool is_free(const Ring::Use& use);
  bool is_held(const Ring::Use& use) const {
    return use.sequence == announced_ && use.round != Ring::kByCall && use.round >= held_[use.stream];
  }
  void hold_nothing() { held_[kInputs] = held_[kResults] = kAllRounds; }
  bool wait_for(const std::atomic<uint64_t>& word, uint64_t seen, Rank peer) {
    awaited_.push_back({&word, seen, peer});
    return false;
  }

  Host& host_;
  const uint32_t group_;
  const Rank rank_;
  const Limits limits_;
  const std::vector<Rank> names_;
  std::vector<Peer> peers_;              // by rank; our own has our area
  std::size_t joined_ = 0, agreed_ = 0;  // of peers_, in order
  bool reads_all_ = false;               // once joined
  GroupArea* own_ = nullptr;
  std::span<std::byte> memory_ = {};  // of the rings
  Ring rings_[2];                     // by StreamKind
  Ways ways_;
  struct Announcement {
    uint64_t sequence = 0;
    uint32_t fingerprint = 0;
  };
  uint64_t announced_ = 0;               // this rank's last number
  uint32_t fingerprint_ = 0;             // and what it was; void, once it was given up
  Announcement sought_;                  // what look() compares with
  uint8_t next_ = 1;                     // the line that is written next
  uint64_t everybody_ = 0;               // one that all have announced, or a later one
  uint64_t compared_ = 0;                // and the last whose fingerprints were compared, or need not be
  uint64_t count_[2] = {};               // of messages published in each stream
  uint64_t read_[2] = {};                // what this rank has said of its reading
  std::vector<std::atomic<bool>> left_;  // by rank
  std::vector<Awaited> awaited_;
  std::vector<Stray> strays_;
  uint32_t held_[2] = {kAllRounds, kAllRounds};  // from which round on, by StreamKind
};

inline constexpr uint32_t kVoid = 0;  // the fingerprint of a call that this rank did not make
uint32_t fingerprint_of(uint64_t digest);

}  // namespace pc::shm
