#include "engine/shm/shared_run.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>

#include "kernels/copy.h"
#include "kernels/reduce.h"

namespace pc::shm {
namespace {

Status has_left(Rank peer) {
  return Status(Code::kPeerExited,
                "rank " + std::to_string(peer) + " called shutdown() or ended instead of making this call")
      .with_peer(peer);
}

}  // namespace

SharedRun::~SharedRun() {
  if (started_ && !ended()) end(Status(Code::kSystem, "no memory to go on with this call"));
  driven();
}

void SharedRun::prepare(const Request& request, const Launch& launch, const Division& division,
                        Beyond* beyond) {
  renew(request, launch);
  beyond_ = beyond;
  stage_ = Stage::kJoining;
  next_peer_ = 0;
  positions_.clear();
  announced_ = on_trial_ = false;
  way_ = Way::kRing;
  kept_ = 0;
  failure_ = Status();
  arrays_.bind(request, group_.limits().past_caches_from);
  waits_for_.store(-1, std::memory_order_relaxed);
  begun_.store(false, std::memory_order_relaxed);
  waits_beyond_.store(false, std::memory_order_relaxed);
  if (!traffic_.is_for(request, launch, division)) traffic_.bind(request, launch, group_.limits(), division);
}

void SharedRun::start(Scratch&) {
  started_ = true;
  go_on();
  tell(launch_, group_.take_strays());
}

void SharedRun::start_at_once() {
  started_ = true;
  go_on();
  if (ended() || traffic_.in_rounds()) return;  // these take too long to keep everybody else waiting
  waiter_.briefly([this] {
    if (!ready()) return false;
    go_on();
    return ended();
  });
}

void SharedRun::tell(const Launch& launch, const std::vector<Stray>& strays) {
  for (const Stray& stray : strays) {
    if (launch.listener != nullptr) launch.listener->stray(stray.sequence, stray.world, stray.why);
  }
}

void SharedRun::advance() {
  Completion completion;
  while (!ended() && queue_.take(completion)) {
    if (completion.token == kEndToken) return end(std::move(completion.status));
  }
  if (ended()) return;
  go_on();
  tell(launch_, group_.take_strays());
}

void SharedRun::go_on() {
  begun_.store(true, std::memory_order_relaxed);
  group_.awaited().clear();
  more_to_do_ = false;
  try {
    if (step()) return end(Status());
    if (!failure_.is_ok()) return end(std::move(failure_));
  } catch (const std::bad_alloc&) {
    return end(Status(Code::kSystem, "no memory to go on with this call"));
  }
  const std::vector<Awaited>& awaited = group_.awaited();
  for (const Awaited& word : awaited) {
    // In this order: what it wrote, it wrote before it left.
    if (group_.has_left(word.peer) && !word.has_changed()) return end(has_left(launch_.named(word.peer)));
  }
  note_whom_it_waits_for();
}

void SharedRun::note_whom_it_waits_for() {
  const std::vector<Awaited>& awaited = group_.awaited();
  const Rank far = beyond_ == nullptr ? -1 : beyond_->waits_for();
  const Rank near = awaited.empty() ? -1 : launch_.named(awaited.front().peer);
  waits_beyond_.store(far != -1, std::memory_order_relaxed);
  waits_for_.store(far != -1 ? far : near, std::memory_order_relaxed);
}

bool SharedRun::step() {
  const bool in_rounds = traffic_.in_rounds();
  if (stage_ == Stage::kJoining) {
    if (!join()) return false;
    stage_ = Stage::kAnnouncing;
  }
  if (stage_ == Stage::kAnnouncing) {
    if (!(leads() ? lead() : in_rounds ? announce_rounds() : announce())) return false;
    announced_ = true;
    next_peer_ = 0;
    stage_ = in_rounds ? Stage::kComparing : Stage::kSmall;
  }
  if (stage_ == Stage::kSmall) return small();
  if (stage_ == Stage::kComparing) {
    if (!compare_all()) return false;
    stage_ = Stage::kRounds;
  }
  if (stage_ == Stage::kRounds) {
    if (!rounds() || !all_stand()) return false;
    group_.set_done();
    stage_ = Stage::kLeaving;
  }
  if (!leave()) return false;
  if (on_trial_) group_.ways().took(way_, kind(), std::chrono::steady_clock::now() - began_);
  return true;
}

Ways::Kind SharedRun::kind() const {
  return {request_.collective, is_rooted(request_.collective) && launch_.rank == request_.root,
          traffic_.nbytes()};
}

// `stays`: the others may read the input where it lies.
void SharedRun::choose_way(bool stays) {
  const bool is_moved = !traffic_.combines() && arrays_.input() != nullptr;
  const bool is_large = traffic_.nbytes() >= group_.limits().private_from;
  if (!stays || !is_moved || !is_large || !group_.reads_private_memory()) return;
  const Ways::Chosen chosen = group_.ways().next(kind());
  way_ = chosen.way;
  on_trial_ = chosen.on_trial;
  if (way_ == Way::kPrivateMemory && !Host::can_be_read(arrays_.input())) {
    way_ = Way::kRing;
    on_trial_ = false;
  }
  if (on_trial_) began_ = std::chrono::steady_clock::now();
}

// What others read where it lies is the caller's again when they have it. On trial the time of all counts.
bool SharedRun::leave() {
  if (!lends_[kInputs] && !lends_[kResults] && !on_trial_) return true;
  for (Rank r = 0; r < launch_.size; ++r) {
    if (r != launch_.rank && !group_.is_done(r)) return false;
  }
  return true;
}

bool SharedRun::join() {
  if (group_.is_joined()) return true;
  const Result<bool> joined = group_.join();
  return joined.is_ok() ? joined.value() : fail(joined.status());
}

void SharedRun::end(Status result) {
  if (ended()) return;
  if (beyond_ != nullptr && started_ && !result.is_ok()) beyond_->end(result);
  if (announced_ && group_.announced() == launch_.sequence) {
    if (!result.is_ok()) {
      group_.give_up();
    } else if (traffic_.in_rounds()) {
      group_.set_read(kInputs, kAllRounds);
      group_.set_read(kResults, kAllRounds);
    }
  }
  driven();
  set_ended(std::move(result));
}

// ---- waiting

bool SharedRun::ready() {
  const std::vector<Awaited>& awaited = group_.awaited();
  if (more_to_do_) return true;
  if (awaited.empty()) return beyond_ == nullptr || !beyond_->is_active();
  return std::any_of(awaited.begin(), awaited.end(), [](const Awaited& word) { return word.has_changed(); });
}

WaitEnd SharedRun::wait(Reactor& reactor, const WaitContext& context) {
  const auto look = [this] { return ready() || !queue_.empty(); };
  const bool polls = beyond_ != nullptr && beyond_->is_active();
  const bool stays_awake = !polls || !reactor.polls_in_background();
  if (stays_awake && waiter_.briefly([&] { return look() || (polls && reactor.poll(queue_)); }))
    return WaitEnd::kReady;
  host_.list(queue_, kWakeToken);
  // Only now: either this sees what the others have written, or they see that this rank sleeps.
  const WaitEnd end = look() ? WaitEnd::kReady : reactor.wait(queue_, context);
  host_.unlist(queue_);
  return end;
}

void SharedRun::undriven() {
  if (listed_ || ended()) return;
  listed_ = true;
  host_.list(queue_, kWakeToken);
  if (ready()) wake();
}

void SharedRun::driven() {
  if (!listed_) return;
  listed_ = false;
  host_.unlist(queue_);
}

std::string SharedRun::where() const {
  if (ended()) return "ended";
  const Rank peer = waits_for();
  const bool far = waits_beyond_.load(std::memory_order_relaxed);
  if (peer >= 0)
    return (far ? "between hosts: waiting for rank " : "shared memory: waiting for rank ") +
           std::to_string(peer);
  return begun_.load(std::memory_order_relaxed) ? "shared memory: going on"
                                                : "not started: earlier calls of this group are not done";
}

// ---- announcing

bool SharedRun::announce() {
  if (!group_.catch_up(launch_.sequence)) return false;
  const std::size_t nbytes = traffic_.writes() ? traffic_.message_nbytes() : 0;
  std::byte* const payload = group_.payload();
  const bool is_inline = nbytes <= kInlineNbytes;
  std::byte* message = payload;
  if (!is_inline) {
    if (Status made = group_.make_rings(); !made.is_ok()) return fail(std::move(made));
    const std::optional<uint64_t> room = group_.room(nbytes, {launch_.sequence, Ring::kByCall, kInputs});
    if (!room) return false;
    const Place place{*room, nbytes};
    std::memcpy(payload, &place, sizeof place);
    message = group_.at(*room);
  }
  if (nbytes != 0 && !traffic_.is_addressed()) {
    const Traffic::Span all = traffic_.outgoing(launch_.rank);
    arrays_.put(message, all.begin, all.nbytes, group_.copy_for(launch_.rank));
  }
  for (Rank r = 0; r < launch_.size && nbytes != 0 && traffic_.is_addressed(); ++r) {
    if (r == launch_.rank) continue;
    const Traffic::Span part = traffic_.outgoing(r);
    arrays_.put(message + traffic_.place_in_message(launch_.rank, r), part.begin, part.nbytes,
                group_.copy_for(r));
  }
  group_.announce(launch_.sequence, fingerprint_of(launch_.digest));
  while (keep_own_part()) {  // while the others come
  }
  return true;
}

bool SharedRun::compare(Rank peer) {
  switch (group_.look(peer)) {
    case Group::Seen::kSame: return true;
    case Group::Seen::kNothing: return false;
    case Group::Seen::kOther: break;
  }
  return fail(differs(peer));
}

Status SharedRun::differs(Rank peer) const {
  const auto is_leaving = [this](uint32_t fingerprint) {
    return launch_.listener != nullptr &&
           fingerprint == shm::fingerprint_of(launch_.listener->digest_of_leaving(launch_.sequence));
  };
  if (is_leaving(group_.fingerprint_of(peer))) return has_left(launch_.named(peer));
  const std::string who = "rank " + std::to_string(launch_.named(peer));
  const bool leaves = is_leaving(fingerprint_of(launch_.digest));
  return Status(Code::kMismatch,
                who + (leaves ? " is in another call, and this rank leaves"
                              : " made another call here: collective, dtype, op, root, count or algorithm "
                                "differ, or one of the two skipped or repeated a call"))
      .with_peer(launch_.named(peer));
}

// ---- small calls

bool SharedRun::small() {
  if (traffic_.leader() >= 0) return leads() || follow();
  for (; next_peer_ < launch_.size; ++next_peer_) {
    if (!traffic_.reads_from(next_peer_)) continue;
    if (!take_small(next_peer_)) return false;
  }
  if (traffic_.combines() && !combine_small()) return false;
  if (reads_from_all()) group_.everybody_is_here();
  return true;
}

bool SharedRun::take_small(Rank peer) {
  if (!compare(peer)) return false;
  if (traffic_.combines()) return true;
  const Traffic::Span part = traffic_.incoming(peer);
  if (part.nbytes == 0) return true;
  const std::byte* const message = small_message(peer);
  if (message == nullptr) return false;
  arrays_.take(message, part.begin, part.nbytes);
  return true;
}

const std::byte* SharedRun::small_message(Rank peer) {
  const std::size_t wanted = traffic_.incoming(peer).nbytes;
  const std::size_t offset = traffic_.place_in_message(peer, launch_.rank);
  const std::size_t nbytes = traffic_.is_addressed() ? traffic_.message_nbytes() : wanted;
  if (nbytes <= kInlineNbytes) return group_.inline_message(peer) + offset;
  Place place = group_.place_of(peer);
  if (place.nbytes != nbytes) place.nbytes = ~uint64_t{0};  // refused below
  const std::byte* const message = group_.message(peer, place, failure_);
  return message == nullptr ? nullptr : message + offset;
}

bool SharedRun::combine_small() {
  const Contributors from = traffic_.contributors();
  if (!arrays_.has_output() || from.from == from.to) return true;
  const Traffic::Span target = traffic_.incoming(launch_.rank);
  if (target.nbytes == 0) return true;
  sources_.assign(static_cast<std::size_t>(launch_.size), nullptr);
  for (Rank r = from.from; r < from.to; ++r) {
    if (r == launch_.rank) continue;
    const std::byte* const message = small_message(r);
    if (message == nullptr) return false;
    sources_[static_cast<std::size_t>(r)] = message;
  }
  arrays_.combine(contributions(), traffic_.outgoing(launch_.rank).begin, target.begin, target.nbytes,
                  nullptr, Stores::kVector);
  return true;
}

// Of `sources_`, by rank: those that count. Ours is null, for it is in the input.
std::span<const std::byte*> SharedRun::contributions() {
  const Contributors ranks = traffic_.contributors();
  return std::span(sources_).subspan(static_cast<std::size_t>(ranks.from),
                                     static_cast<std::size_t>(ranks.to - ranks.from));
}

// What a rank has for itself, piece by piece. False: all of it is where it belongs.
bool SharedRun::keep_own_part() {
  const bool moves = !traffic_.combines() && moves_data(request_.collective);
  if (!moves || is_of_parts() || !arrays_.has_input() || !arrays_.has_output()) return false;
  const Traffic::Span from = traffic_.outgoing(launch_.rank), to = traffic_.incoming(launch_.rank);
  const std::size_t nbytes = std::min(from.nbytes, to.nbytes), most = std::min(nbytes - kept_, kKeptAtOnce);
  if (most == 0) return false;
  kept_ += arrays_.keep(from.begin + kept_, to.begin + kept_, most);
  return true;
}

}  // namespace pc::shm
