#include "engine/shm/exchange.h"

#include <algorithm>
#include <string>

namespace pc::shm {
namespace {

constexpr std::size_t kKeptAtOnce = 128UL * 1024;

}  // namespace

Status has_left(Rank peer) {
  return Status(Code::kPeerExited,
                "rank " + std::to_string(peer) + " called shutdown() or ended instead of making this call")
      .with_peer(peer);
}

void Exchange::prepare(const Division& division, InterDomainExchange* others) {
  inter_domain = others;
  failure = Status();
  next_peer = 0;
  kept = 0;
  arrays.bind(request, group.limits().past_caches_from);
  if (!traffic.is_for(request, launch, division)) traffic.bind(request, launch, group.limits(), division);
}

bool Exchange::join() {
  if (group.is_joined()) return true;
  const Result<bool> joined = group.join();
  return joined.is_ok() ? joined.value() : fail(joined.status());
}

Status Exchange::differs(Rank peer) const {
  const auto is_leaving = [this](uint32_t fingerprint) {
    return launch.listener != nullptr &&
           fingerprint == fingerprint_of(launch.listener->digest_of_leaving(launch.sequence));
  };
  if (is_leaving(group.fingerprint_of(peer))) return has_left(launch.named(peer));
  const std::string peer_name = "rank " + std::to_string(launch.named(peer));
  const bool leaves = is_leaving(fingerprint_of(launch.digest));
  return Status(
             Code::kMismatch,
             peer_name + (leaves ? " is in another call, and this rank leaves"
                                 : " made another call here: collective, dtype, op, root, count or algorithm "
                                   "differ, or one of the two skipped or repeated a call"))
      .with_peer(launch.named(peer));
}

void Exchange::note_seen() {
  const bool needs_all = !is_rooted(request.collective) && !is_scan(request.collective);
  if (needs_all) group.all_have_announced();
}

std::optional<uint64_t> Exchange::allocate(std::size_t nbytes) {
  if (Status made = group.make_rings(); !made.is_ok()) return fail(std::move(made)), std::nullopt;
  return group.allocate(nbytes, {launch.sequence, Ring::kByCall, kInputs});
}

const std::byte* Exchange::message(Rank peer) {
  const std::size_t wanted = traffic.incoming(peer).nbytes;
  const std::size_t offset = traffic.place_in_message(peer, launch.rank);
  const std::size_t nbytes = traffic.is_addressed() ? traffic.message_nbytes() : wanted;
  if (nbytes <= kInlineNbytes) return group.inline_message(peer) + offset;
  Place place = group.place_of(peer);
  if (place.nbytes != nbytes) place.nbytes = ~uint64_t{0};  // group.message() rejects this size
  const std::byte* const message = group.message(peer, place, failure);
  return message == nullptr ? nullptr : message + offset;
}

bool Exchange::keep_own_part() {
  const bool moves = !traffic.combines() && moves_data(request.collective);
  if (!moves || is_of_parts() || !arrays.has_input() || !arrays.has_output()) return false;
  const Traffic::Span from = traffic.outgoing(launch.rank), to = traffic.incoming(launch.rank);
  const std::size_t nbytes = std::min(from.nbytes, to.nbytes), most = std::min(nbytes - kept, kKeptAtOnce);
  if (most == 0) return false;
  kept += arrays.keep(from.begin + kept, to.begin + kept, most);
  return true;
}

}  // namespace pc::shm
