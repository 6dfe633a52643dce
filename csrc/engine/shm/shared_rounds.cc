// Calls in rounds of a SharedRun: streams of chunks through rings, or through arrays that others read where they lie.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "engine/shm/shared_run.h"

namespace pc::shm {
namespace {

constexpr std::size_t kFarAtOnce = 1024UL * 1024;  // in one system call
constexpr int kMostTurns = 16;                     // before the driver looks at its deadline
constexpr std::size_t kMostAhead =
    4;  // rounds that a rank puts into its ring before it takes the first of them back

// Where a reader finds its part among those that a writer has put there, one behind the other.
std::size_t part_number(Rank writer, Rank reader) {
  return static_cast<std::size_t>(reader < writer ? reader : reader - 1);
}

}  // namespace

// Where in this rank's streams the messages of the call begin.
bool SharedRun::announce_rounds() {
  if (!group_.catch_up(launch_.sequence)) return false;
  if (Status made = group_.make_rings(); !made.is_ok()) return fail(std::move(made));
  Opening opening{{group_.stream_base(kInputs), group_.stream_base(kResults)}, {}};
  const auto lend = [&](StreamKind kind, const std::byte* array, std::size_t nbytes) {
    const std::optional<HeapPlace> place = array == nullptr ? std::nullopt : host_.heap().find(array, nbytes);
    lends_[kind] = place.has_value();
    if (place) opening.arrays[kind] = *place;
  };
  lends_[kInputs] = lends_[kResults] = false;
  // What others have just read and this rank then overwrites, as these calls do, must come back from their caches line by
  // line: that costs more than copies, unless the array is in no cache anyway.
  const bool is_overwritten = traffic_.passes_results_on() || request_.collective == Collective::kBroadcast;
  const bool pays = beyond_ == nullptr && (!is_overwritten || elements_of(request_, launch_.size).nbytes() >=
                                                                  group_.limits().in_place_from);
  const bool stays = traffic_.writes() && traffic_.inputs_stay(arrays_.input() == arrays_.output());
  if (pays && stays) lend(kInputs, arrays_.input(), request_.in.nbytes());
  if (pays && traffic_.passes_results_on()) lend(kResults, arrays_.output(), request_.out.nbytes());
  if (!lends_[kInputs] && beyond_ == nullptr) choose_way(stays);  // else times would say nothing about ways
  if (way_ == Way::kPrivateMemory) {
    lends_[kInputs] = true;
    opening.arrays[kInputs] = {0, 0, reinterpret_cast<uintptr_t>(arrays_.input())};
  }
  std::memcpy(group_.payload(), &opening, sizeof opening);
  note_rounds();
  group_.announce(launch_.sequence, fingerprint_of(launch_.digest));
  hold_what_is_not_passed_on();
  tell_what_is_not_read();
  return true;
}

// What a rank writes for one round.
std::size_t SharedRun::round_nbytes() const {
  const std::size_t readers = traffic_.is_addressed() ? static_cast<std::size_t>(launch_.size) - 1 : 1;
  return traffic_.chunk_nbytes() * readers;
}

uint32_t SharedRun::rounds_of(std::size_t nbytes) const {
  const std::size_t chunk = traffic_.chunk_nbytes();
  return static_cast<uint32_t>((nbytes + chunk - 1) / chunk);
}

void SharedRun::note_rounds() {
  put_ = put_rounds_ = combined_ = combined_rounds_ = passed_ = 0;
  positions_.clear();
  incoming_.assign(static_cast<std::size_t>(launch_.size), Incoming{});
  const bool combines = traffic_.combines();
  const uint32_t least = traffic_.sizes_nbytes() == 0 ? 0 : 1;  // sizes are told and compared in round 0
  for (Rank r = 0; r < launch_.size; ++r) {
    const bool sends = traffic_.writes() && !lends_[kInputs] &&
                       (traffic_.is_addressed() ? r != launch_.rank : r == launch_.rank);
    if (sends) put_rounds_ = std::max({put_rounds_, rounds_of(traffic_.outgoing(r).nbytes), least});
    Incoming& from = incoming_[static_cast<std::size_t>(r)];
    if (traffic_.wants_results() && r != launch_.rank) from.rounds = rounds_of(traffic_.piece(r).nbytes);
    if (!combines && traffic_.reads_from(r))
      from.rounds = std::max(rounds_of(traffic_.incoming(r).nbytes), least);
  }
  const Contributors ranks = traffic_.contributors();
  if (combines && ranks.from != ranks.to) combined_rounds_ = rounds_of(own_sum().nbytes);
  const bool takes =
      std::any_of(incoming_.begin(), incoming_.end(), [](const Incoming& from) { return from.rounds != 0; });
  reads_[kInputs] = combines ? combined_rounds_ != 0 : takes;
  reads_[kResults] = traffic_.wants_results() && takes;
}

void SharedRun::tell_what_is_not_read() {
  for (const StreamKind kind : {kInputs, kResults}) {
    if (!reads_[kind]) group_.set_read(kind, kAllRounds);
  }
}

// Of the output: what is combined here.
Traffic::Span SharedRun::own_sum() const {
  return traffic_.passes_results_on() ? traffic_.piece(launch_.rank) : traffic_.incoming(launch_.rank);
}

// Nothing of a call is used before it is known to be the same on the other side.
bool SharedRun::compare_all() {
  for (; next_peer_ < launch_.size; ++next_peer_) {
    const bool matters =
        traffic_.reads_from(next_peer_) || (traffic_.wants_results() && next_peer_ != launch_.rank);
    if (!matters) continue;
    if (!compare(next_peer_)) return go_on_meanwhile(), false;
    if (!find_arrays(next_peer_)) return false;
  }
  if (reads_from_all()) group_.everybody_is_here();
  return true;
}

// While a rank is late. Other hosts may wait for what the plans of this rank do next.
void SharedRun::go_on_meanwhile() {
  bool moved = true;
  while (moved && failure_.is_ok()) {
    moved = put_inputs();
    if (beyond_ != nullptr) moved |= pass_on();
  }
}

bool SharedRun::find_arrays(Rank peer) {
  Incoming& from = incoming_[static_cast<std::size_t>(peer)];
  std::memcpy(&from.opening, group_.inline_message(peer), sizeof from.opening);
  for (const StreamKind kind : {kInputs, kResults}) {
    const HeapPlace& place = from.opening.arrays[kind];
    if (place.pages == 0 && place.offset == 0) continue;
    const Traffic::Span part = kind == kResults ? traffic_.piece(peer) : own_part_of(peer);
    if (place.pages == 0) {
      if (!find_far(peer, kind, place.offset + part.begin)) return false;
      continue;
    }
    const Result<const std::byte*> array = group_.array(peer, place, part.begin + part.nbytes);
    if (!array.is_ok()) return fail(array.status());
    from.arrays[kind] = array.value() + part.begin;
  }
  return true;
}

// In a rank's private memory.
bool SharedRun::find_far(Rank peer, StreamKind kind, uint64_t address) {
  if (kind == kResults || traffic_.combines() || !group_.reads_private_memory()) {
    return fail(Status(Code::kMismatch, "rank " + std::to_string(peer) +
                                            " says that its array is where none can be; its shared memory is "
                                            "damaged")
                    .with_peer(peer));
  }
  incoming_[static_cast<std::size_t>(peer)].far = address;
  return true;
}

// In a rank's input array: what it has for this rank.
Traffic::Span SharedRun::own_part_of(Rank peer) const {
  return {traffic_.place_in_input(peer),
          traffic_.combines() ? own_sum().nbytes : traffic_.incoming(peer).nbytes};
}

// Then a rank that has seen what it needs has seen everybody.
bool SharedRun::reads_from_all() const {
  const Collective collective = request_.collective;
  return !is_rooted(collective) && collective != Collective::kScan && collective != Collective::kExscan;
}

bool SharedRun::is_done() const {
  return put_ == put_rounds_ && combined_ == combined_rounds_ && passed_ == positions_.size() &&
         std::all_of(incoming_.begin(), incoming_.end(),
                     [](const Incoming& from) { return from.next == from.rounds; });
}

bool SharedRun::rounds() {
  const StreamKind kind = traffic_.passes_results_on() ? kResults : kInputs;
  bool moved = true;
  for (int turn = 0; turn < kMostTurns && moved; ++turn) {
    group_.awaited().clear();
    moved = put_inputs();
    moved |= combine_round();
    if (beyond_ != nullptr) moved |= pass_on();
    bool taken = false;
    for (Rank step = 1; step < launch_.size; ++step)
      taken |= take(kind, (launch_.rank + step) % launch_.size);
    if (taken) tell_what_is_read(kind);
    moved |= taken;
    if (!failure_.is_ok()) return false;
    if (!moved) moved = keep_own_part();
  }
  if (!moved) return is_done();
  group_.awaited().clear();
  more_to_do_ = true;
  return false;
}

bool SharedRun::put_inputs() {
  if (put_ == put_rounds_) return false;
  const bool exchanges = beyond_ != nullptr && !traffic_.combines();
  if (exchanges && !beyond_->has_room()) return false;
  // Not far ahead: what was read here is written when the result of the same round comes back.
  if (combined_ < combined_rounds_ && put_ >= combined_ + kMostAhead) return false;
  const std::size_t chunk = traffic_.chunk_nbytes();
  const Ring::Use use{launch_.sequence, put_, kInputs};
  const std::size_t offset = put_ * chunk;
  const auto part_of = [&](Rank reader) {
    const Traffic::Span all = traffic_.outgoing(reader);
    const std::size_t begin = std::min(offset, all.nbytes);
    return Traffic::Span{all.begin + begin, std::min(chunk, all.nbytes - begin)};
  };
  const std::size_t sizes = put_ == 0 ? traffic_.sizes_nbytes() : 0;
  const std::size_t nbytes = traffic_.is_addressed() ? sizes + round_nbytes() : part_of(launch_.rank).nbytes;
  const std::optional<uint64_t> room = group_.room(nbytes, use);
  if (!room) return false;
  std::byte* to = group_.at(*room);
  if (!traffic_.is_addressed() && is_of_parts()) {
    put_parts(launch_.rank, put_, nbytes, to);
  } else if (!traffic_.is_addressed() && arrays_.has_input()) {  // else it comes from another host
    const Traffic::Span part = part_of(launch_.rank);
    arrays_.put(to, part.begin, part.nbytes, group_.copy_for(launch_.rank));
  }
  if (exchanges) {
    exchange(put_++, *room, {to, nbytes});
    return true;
  }
  std::byte* parts = to + sizes;
  for (Rank r = 0; r < launch_.size && traffic_.is_addressed(); ++r) {
    if (r == launch_.rank) continue;
    const Traffic::Span part = part_of(r);
    is_of_parts() ? put_parts(r, put_, part.nbytes, parts)
                  : arrays_.put(parts, part.begin, part.nbytes, group_.copy_for(r));
    parts += chunk;
    if (sizes == 0) continue;
    const uint64_t whole = traffic_.outgoing(r).nbytes;
    std::memcpy(to, &whole, sizeof whole);
    to += sizeof whole;
  }
  group_.publish(kInputs, put_++, *room);
  if (!traffic_.is_addressed() && kept_ < put_ * chunk) keep_own_part();  // while it is in a cache
  return true;
}

// Where `nbytes` at `offset` of a round's message are. Null: not there yet.
const std::byte* SharedRun::round_message(Rank peer, StreamKind kind, uint32_t round, std::size_t offset,
                                          std::size_t nbytes) {
  const Incoming& from = incoming_[static_cast<std::size_t>(peer)];
  const std::byte* const array = from.arrays[kind];
  if (array != nullptr && kind == kInputs) return array + round * traffic_.chunk_nbytes();
  const std::optional<uint64_t> position = group_.published(peer, kind, from.opening.base[kind], round);
  if (!position) return nullptr;
  if (array != nullptr) return array + round * traffic_.chunk_nbytes();
  const std::byte* const message = group_.message(peer, {*position, offset + nbytes}, failure_);
  return message == nullptr ? nullptr : message + offset;
}

bool SharedRun::combine_round() {
  if (combined_ == combined_rounds_) return false;
  if (beyond_ != nullptr && !beyond_->has_room()) return false;
  // What the others want of the input must have been put there: in place, it is overwritten.
  if (!traffic_.is_addressed() && put_ != put_rounds_ && put_ <= combined_) return false;
  const std::size_t chunk = traffic_.chunk_nbytes();
  const Contributors from = traffic_.contributors();
  const Traffic::Span all = own_sum();
  const std::size_t offset = combined_ * chunk, nbytes = std::min(chunk, all.nbytes - offset);
  sources_.assign(static_cast<std::size_t>(launch_.size), nullptr);
  for (Rank r = from.from; r < from.to; ++r) {
    if (r == launch_.rank) continue;
    const std::size_t place = traffic_.is_addressed() ? chunk * part_number(r, launch_.rank) : 0;
    const std::byte* const message = round_message(r, kInputs, combined_, place, nbytes);
    if (message == nullptr) return false;
    sources_[static_cast<std::size_t>(r)] = message;
  }
  std::byte* also = nullptr;
  std::optional<uint64_t> room;
  const bool others_want_it = others_want_results() || beyond_ != nullptr;
  if (others_want_it && lends_[kResults] && !group_.has_entry(kResults, combined_)) return false;
  if (others_want_it && !lends_[kResults]) {
    room = group_.room(nbytes, {launch_.sequence, combined_, kResults});
    if (!room) return false;
    also = group_.at(*room);
  }
  if (is_of_parts()) {
    combine_parts(combined_, nbytes, also);
  } else {
    const std::size_t out_begin = beyond_ == nullptr ? all.begin + offset : CallArrays::kNowhere;
    arrays_.combine(contributions(), traffic_.outgoing(launch_.rank).begin + offset, out_begin, nbytes, also,
                    group_.stores_for_all());
  }
  if (beyond_ != nullptr) {
    exchange(combined_, *room, {also, nbytes});
  } else if (others_want_it) {
    group_.publish(kResults, combined_, room.value_or(0));
  }
  ++combined_;
  group_.set_read(kInputs, combined_ == combined_rounds_ ? kAllRounds : combined_);
  return true;
}

bool SharedRun::take(StreamKind kind, Rank peer) {
  Incoming& from = incoming_[static_cast<std::size_t>(peer)];
  if (from.next == from.rounds) return false;
  if (from.far != 0) return take_far(peer);
  const std::size_t chunk = traffic_.chunk_nbytes();
  const Traffic::Span all = kind == kResults ? traffic_.piece(peer) : traffic_.incoming(peer);
  const std::size_t offset = from.next * chunk, nbytes = std::min(chunk, all.nbytes - offset);
  const bool is_own_part = kind == kInputs && traffic_.is_addressed();
  const std::size_t number = is_own_part ? part_number(peer, launch_.rank) : 0;
  const std::size_t sizes = from.next == 0 && is_own_part ? traffic_.sizes_nbytes() : 0;
  const std::byte* const message = round_message(peer, kind, from.next, sizes + chunk * number, nbytes);
  if (message == nullptr) return false;
  if (sizes != 0 && !has_size(peer, message - chunk * number - sizes + number * sizeof(uint64_t)))
    return false;
  is_of_parts() ? take_parts(peer, from.next, nbytes, message)
                : arrays_.take(message, all.begin + offset, nbytes);
  ++from.next;
  return true;
}

// By one copy of the kernel's, which costs a system call: several rounds at once.
bool SharedRun::take_far(Rank peer) {
  Incoming& from = incoming_[static_cast<std::size_t>(peer)];
  const std::size_t chunk = traffic_.chunk_nbytes(), offset = from.next * chunk;
  const uint32_t rounds =
      std::min(from.rounds - from.next, static_cast<uint32_t>(std::max<std::size_t>(kFarAtOnce / chunk, 1)));
  const Traffic::Span all = traffic_.incoming(peer);
  uint64_t address = from.far + offset;
  const Status read = arrays_.fill(all.begin + offset, std::min(rounds * chunk, all.nbytes - offset),
                                   [&](std::span<std::byte> piece) {
                                     const uint64_t begin = std::exchange(address, address + piece.size());
                                     return group_.read(peer, begin, piece);
                                   });
  if (read.code() == Code::kPeerFailure) return group_.await_news(peer);  // it is gone
  if (!read.is_ok() && !group_.stands(peer)) return false;                // then the array may be gone
  if (!read.is_ok()) {
    return fail(Status(Code::kSystem, read.message() + "; PYCOLLECTIVE_SINGLE_COPY=off does without")
                    .with_peer(peer));
  }
  from.next += rounds;
  return true;
}

// Of a part whose size only sender and receiver know.
bool SharedRun::has_size(Rank peer, const std::byte* said) {
  uint64_t there = 0;
  std::memcpy(&there, said, sizeof there);
  const std::size_t here = traffic_.incoming(peer).nbytes;
  if (there == here) return true;
  return fail(Status(Code::kMismatch, "another size is expected from rank " + std::to_string(peer) +
                                          ": here " + std::to_string(here) + " bytes, there " +
                                          std::to_string(there) + " bytes")
                  .with_peer(peer));
}

void SharedRun::tell_what_is_read(StreamKind kind) {
  uint32_t read = kAllRounds;
  for (const Incoming& each : incoming_) {
    if (each.next != each.rounds) read = std::min(read, each.next);
  }
  group_.set_read(kind, read);
}

// What was read in a rank's own array is right only if it was still in the call then.
bool SharedRun::all_stand() {
  for (Rank r = 0; r < launch_.size; ++r) {
    const Incoming& from = incoming_[static_cast<std::size_t>(r)];
    const bool was_read =
        from.far != 0 || from.arrays[kInputs] != nullptr || from.arrays[kResults] != nullptr;
    if (was_read && !group_.stands(r)) return false;
  }
  return true;
}

}  // namespace pc::shm
