#include "engine/shm/group.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace pc::shm {
namespace {

constexpr uint64_t kRepeatEvery = uint64_t{1} << 28;
constexpr uint64_t kFurthest = uint64_t{1} << 29;  // the largest distance of call numbers that are compared

uint32_t low(uint64_t word) { return static_cast<uint32_t>(word); }
uint32_t high(uint64_t word) { return static_cast<uint32_t>(word >> 32); }
// The two numbers must differ by less than 2^31.
bool is_before(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) < 0; }

}  // namespace

uint32_t fingerprint_of(uint64_t digest) {
  const uint32_t folded = low(digest) ^ high(digest);
  return folded == kVoid ? 1 : folded;
}

Status Group::make_rings() {
  if (!memory_.empty()) return Status::ok();
  const std::size_t nbytes = limits_.ring;
  PC_ASSIGN_OR_RETURN(memory_, host_.make_ring(*own_, nbytes / 2 * 3));
  rings_[kInputs].set_place(0, nbytes);
  rings_[kResults].set_place(nbytes, nbytes / 2);
  return Status::ok();
}

// ---- slots

// Returns whether all members have announced that call or a later one.
bool Group::have_announced(uint64_t sequence) {
  if (all_announced_ >= sequence) return true;
  for (Rank r = 0; r < size(); ++r) {
    if (r == rank_) continue;
    const GroupArea& area = *peers_[index(r)].area;
    const std::size_t likely = next_ ^ 1U;  // the slot of this rank's last announcement
    const uint64_t word = area.slots[likely].word.load(std::memory_order_seq_cst);
    if (!is_before(low(word), low(sequence))) continue;
    const uint64_t other = area.slots[likely ^ 1U].word.load(std::memory_order_seq_cst);
    if (is_before(low(other), low(sequence))) return wait_for_slot(r, likely, word, other);
  }
  all_announced_ = sequence;
  return true;
}

// Records the wait for a member's next announcement, which overwrites the slot with the older word.
// The very first announcement is written into slot 1.
bool Group::wait_for_slot(Rank peer, std::size_t slot, uint64_t word, uint64_t other) {
  const bool is_older = low(word) == low(other) ? slot == 1 : is_before(low(word), low(other));
  const std::size_t next = is_older ? slot : slot ^ 1U;
  return wait_for(peers_[index(peer)].area->slots[next].word, is_older ? word : other, peer);
}

// Call it when all members have announced this rank's last call or a later one. Records each member
// that announced a different call under that number.
void Group::compare_last() {
  if (compared_ == announced_) return;
  compared_ = announced_;
  for (Rank r = 0; r < size() && fingerprint_ != kVoid; ++r) {
    for (const CallSlot& slot : peers_[index(r)].area->slots) {
      const uint64_t word = slot.word.load(std::memory_order_relaxed);
      if (low(word) != low(announced_) || high(word) == fingerprint_ || high(word) == kVoid) continue;
      late_mismatches_.push_back(
          {announced_, peers_[index(r)].world, Status(Code::kMismatch, rank_name(r) + " made another call")});
    }
  }
}

bool Group::catch_up(uint64_t sequence) {
  for (;;) {
    if (announced_ != 0 && !have_announced(announced_)) return false;
    compare_last();
    if (sequence - announced_ <= kFurthest) return true;
    announce(announced_ + kFurthest, kVoid);
    give_up();
  }
}

// If this rank gave up calls without announcing them, other ranks may still wait for these
// announcements before they announce the call that this rank leads. So this rank first announces
// the given-up calls as void.
bool Group::catch_up_to_lead(uint64_t sequence, uint32_t fingerprint) {
  for (;;) {
    if (!catch_up(sequence)) return false;
    const uint64_t newest = newest_before(sequence);
    if (newest == announced_) break;
    announce(newest, kVoid);
    give_up();
  }
  sought_ = {sequence, fingerprint};
  return true;
}

// Returns the last call before `sequence` that any member has announced.
uint64_t Group::newest_before(uint64_t sequence) const {
  uint64_t newest = announced_;
  for (const Peer& peer : peers_) {
    for (const CallSlot& slot : peer.area->slots) {
      const int32_t ahead =
          static_cast<int32_t>(low(slot.word.load(std::memory_order_seq_cst)) - low(announced_));
      const uint64_t number = announced_ + static_cast<uint64_t>(static_cast<int64_t>(ahead));
      if (ahead > 0 && number < sequence) newest = std::max(newest, number);
    }
  }
  return newest;
}

void Group::give_up() {
  fingerprint_ = kVoid;
  hold_nothing();
  own_->gave_up.exchange(announced_, std::memory_order_seq_cst);
  set_read(kInputs, kAllRounds);
  set_read(kResults, kAllRounds);
}

void Group::announce(uint64_t sequence, uint32_t fingerprint) {
  // Words of rounds are compared by their difference, so the words of long-finished calls are
  // renewed before the difference can overflow.
  if (sequence / kRepeatEvery != announced_ / kRepeatEvery) {
    set_read(kInputs, kAllRounds);
    set_read(kResults, kAllRounds);
  }
  sought_ = {sequence, fingerprint};
  fingerprint_ = fingerprint;
  announced_ = sequence;
  hold_nothing();
  const std::size_t slot = next_;
  next_ ^= 1U;
  // Sequentially consistent, as is Host::list(): either the sleeping rank sees this announcement,
  // or this rank sees that the other rank sleeps.
  own_->slots[slot].word.exchange(uint64_t{fingerprint} << 32 | low(sequence), std::memory_order_seq_cst);
  wake_all();
}

Group::Seen Group::look(Rank peer) {
  Peer& from = peers_[index(peer)];
  // the slot in which this rank announces the call; the other members most likely use the same slot
  const std::size_t likely = announced_ == sought_.sequence ? next_ ^ 1U : next_;
  uint64_t words[2];
  for (const std::size_t slot : {likely, likely ^ 1U}) {
    const uint64_t word = words[slot] = from.area->slots[slot].word.load(std::memory_order_seq_cst);
    if (low(word) != low(sought_.sequence)) continue;
    from.slot = static_cast<uint8_t>(slot);
    if (high(word) == sought_.fingerprint) [[likely]]
      return Seen::kSame;
    if (high(word) != kVoid) return Seen::kOther;
  }
  wait_for_slot(peer, 0, words[0], words[1]);
  return Seen::kNothing;
}

uint32_t Group::fingerprint_of(Rank peer) const {
  const Peer& from = peers_[index(peer)];
  return high(from.area->slots[from.slot].word.load(std::memory_order_relaxed));
}

Place Group::place_of(Rank peer) const {
  Place place;
  std::memcpy(&place, inline_message(peer), sizeof place);
  return place;
}

const std::byte* Group::message(Rank peer, const Place& place, Status& why) {
  Peer& from = peers_[index(peer)];
  if (from.ring.empty()) [[unlikely]] {
    const Result<std::span<const std::byte>> ring = host_.find_ring(from.world, *from.area);
    if (!ring.is_ok()) return why = ring.status(), nullptr;
    from.ring = ring.value();
  }
  const bool is_inside = place.position % Ring::kAlign == 0 && place.position <= from.ring.size() &&
                         place.nbytes <= from.ring.size() - place.position;
  if (is_inside) [[likely]]
    return from.ring.data() + place.position;
  why = Status(Code::kMismatch,
               rank_name(peer) + " says that a message is where none can be; its shared memory is damaged")
            .with_peer(named(peer));
  return nullptr;
}

void Group::set_done() {
  own_->done.exchange(announced_, std::memory_order_seq_cst);
  wake_all();
}

bool Group::is_done(Rank peer) {
  const std::atomic<uint64_t>& done = peers_[index(peer)].area->done;
  const uint64_t seen = done.load(std::memory_order_seq_cst);
  return seen >= announced_ || wait_for(done, seen, peer);
}

bool Group::stays_exposed(Rank peer) {
#ifdef __SANITIZE_THREAD__  // ThreadSanitizer supports no fences
  std::atomic_signal_fence(std::memory_order_acquire);
#else
  std::atomic_thread_fence(std::memory_order_acquire);  // the data was read before this
#endif
  // A rank that exposes arrays cannot complete this call without this rank. It can only give the
  // call up.
  return peers_[index(peer)].area->gave_up.load(std::memory_order_seq_cst) < announced_ || await_change(peer);
}

// When `peer` gives the call up, the control plane ends it on this rank, too.
bool Group::await_change(Rank peer) {
  const std::atomic<uint64_t>& gave_up = peers_[index(peer)].area->gave_up;
  return wait_for(gave_up, gave_up.load(std::memory_order_seq_cst), peer);
}

// ---- ring

bool Group::is_free(const Ring::Use& use) {
  // Nothing is recorded in awaited(), because no member's word changes when the hold ends. The
  // caller retries then.
  if (is_held(use)) return false;
  if (use.sequence < all_announced_) return true;
  if (use.round == Ring::kByCall) return have_announced(use.sequence + 1);
  const uint64_t wanted = round_word(use.sequence, use.round + 1);
  for (Rank r = 0; r < size(); ++r) {
    if (r == rank_) continue;
    const std::atomic<uint64_t>& read = peers_[index(r)].area->streams[use.stream].read;
    const uint64_t word = read.load(std::memory_order_seq_cst);
    // It suffices to wait for this word. A member that gave call `use.sequence` up without
    // announcing it has announced a later call by the time this rank begins its next call.
    if (!reached(word, wanted) && !has_announced_after(r, use.sequence)) return wait_for(read, word, r);
  }
  return true;
}

// Returns whether a member has announced a call after `sequence`. Such a member reads nothing of
// call `sequence` any more. If the member gave call `sequence` up without announcing it, only this
// later announcement shows that.
bool Group::has_announced_after(Rank peer, uint64_t sequence) const {
  const CallSlot* const slots = peers_[index(peer)].area->slots;
  return std::any_of(slots, slots + 2, [&](const CallSlot& slot) {
    return is_before(low(sequence), low(slot.word.load(std::memory_order_seq_cst)));
  });
}

// ---- streams

void Group::publish(StreamKind kind, uint32_t round, uint64_t position) {
  Stream& stream = own_->streams[kind];
  Entry& entry = stream.entries[count_[kind] % kEntries];
  entry.round.store(round_word(announced_, round), std::memory_order_relaxed);
  entry.position.store(position, std::memory_order_relaxed);
  stream.count.exchange(++count_[kind], std::memory_order_seq_cst);
  wake_all();
}

std::optional<uint64_t> Group::published(Rank peer, StreamKind kind, uint64_t base, uint32_t round) {
  const Stream& stream = peers_[index(peer)].area->streams[kind];
  const uint64_t count = stream.count.load(std::memory_order_seq_cst);
  if (static_cast<int64_t>(count - (base + round)) > 0) {
    const Entry& entry = stream.entries[(base + round) % kEntries];
    // If the words differ, that rank has given this call up and is in a later one.
    if (entry.round.load(std::memory_order_relaxed) == round_word(announced_, round))
      return entry.position.load(std::memory_order_relaxed);
  }
  wait_for(stream.count, count, peer);
  return std::nullopt;
}

void Group::set_read(StreamKind kind, uint32_t rounds) {
  const uint64_t word = round_word(announced_, rounds);
  if (std::exchange(read_[kind], word) == word) return;
  own_->streams[kind].read.exchange(word, std::memory_order_seq_cst);
  wake_all();
}

}  // namespace pc::shm
