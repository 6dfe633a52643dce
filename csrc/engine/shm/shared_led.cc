// Small calls of a SharedRun among several hosts. One rank leads: it combines what the ranks here announce, exchanges that with
// those who lead elsewhere, and only then announces the call itself, with the result. The others look at its line alone.
//
//   follows   announces its array ---.                                          .---> takes the result
//   leads                            '---> combines <== column ==> announces ---'
//
// The root leads, and waits for nobody in a broadcast; nor do those who follow in a reduce.
#include <cstring>

#include "engine/shm/shared_run.h"

namespace pc::shm {

bool SharedRun::lead() {
  if (positions_.empty() && !gather()) return false;
  const Result<bool> is_done = beyond_->take(0);
  if (!is_done.is_ok()) return fail(is_done.status());
  if (!is_done.value()) return false;
  const std::size_t nbytes = traffic_.nbytes();
  const bool is_inline = nbytes <= kInlineNbytes, combines = traffic_.combines();
  const std::byte* const result = is_inline ? combined_here_ : group_.at(positions_.front());
  while (keep_own_part()) {  // a broadcast's root has the result
  }
  if (arrays_.has_output() && (combines || !arrays_.has_input())) arrays_.take(result, 0, nbytes);
  const Place place{positions_.front(), nbytes};
  std::memcpy(group_.payload(), is_inline ? static_cast<const void*>(result) : &place,
              is_inline ? nbytes : sizeof place);
  group_.announce(launch_.sequence, fingerprint_of(launch_.digest));
  if (combines) group_.everybody_is_here();
  return true;
}

// What goes out: of all here, or the root's.
bool SharedRun::gather() {
  if (!group_.catch_up_to_lead(launch_.sequence, fingerprint_of(launch_.digest))) return false;
  for (; next_peer_ < launch_.size && traffic_.combines(); ++next_peer_) {
    if (next_peer_ != launch_.rank && !compare(next_peer_)) return false;
  }
  const std::size_t nbytes = traffic_.nbytes();
  std::byte* to = combined_here_;
  uint64_t position = 0;
  if (nbytes > kInlineNbytes) {
    if (Status made = group_.make_rings(); !made.is_ok()) return fail(std::move(made));
    const std::optional<uint64_t> room = group_.room(nbytes, {launch_.sequence, Ring::kByCall, kInputs});
    if (!room) return false;
    position = *room;
    to = group_.at(position);
  }
  if (traffic_.combines()) {
    if (!combine_here(to)) return false;
  } else if (arrays_.has_input()) {
    arrays_.put(to, 0, nbytes, group_.copy_for(launch_.rank));
  }
  exchange(0, position, {to, nbytes});
  return true;
}

bool SharedRun::combine_here(std::byte* to) {
  sources_.assign(static_cast<std::size_t>(launch_.size), nullptr);
  for (Rank r = 0; r < launch_.size; ++r) {
    if (r == launch_.rank) continue;
    const std::byte* const message = small_message(r);
    if (message == nullptr) return false;
    sources_[static_cast<std::size_t>(r)] = message;
  }
  arrays_.combine(contributions(), 0, CallArrays::kNowhere, traffic_.nbytes(), to, group_.stores_for_all());
  return true;
}

bool SharedRun::follow() {
  if (request_.collective == Collective::kReduce) return true;
  const Rank leader = traffic_.leader();
  if (!compare(leader)) return false;
  const std::byte* const message = small_message(leader);
  if (message == nullptr) return false;
  arrays_.take(message, 0, traffic_.nbytes());
  if (traffic_.combines()) group_.everybody_is_here();  // whoever leads has seen them
  return true;
}

}  // namespace pc::shm
