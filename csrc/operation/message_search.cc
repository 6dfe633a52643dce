#include "operation/message_search.h"

#include <optional>

#include "operation/message_operation.h"

namespace pc {
namespace {

constexpr std::string_view kVerb = "recv from";

}  // namespace

MessageSearch::MessageSearch(GroupState& group, Transport& transport, Reactor& reactor,
                             const IncomingMessage& wanted, uint32_t group_id)
    : group_(group),
      transport_(transport),
      reactor_(reactor),
      wanted_(wanted),
      group_id_(group_id) {
  if (wanted.peer != kAnyRank) peers_ = {wanted.peer};
}

MessageSearch::~MessageSearch() {
  if (has_number_) group_.messages.give_back(wanted_.peer, wanted_.tag, false, numbers_.front());
}

std::string MessageSearch::operation() const {
  return std::string(kVerb) + " " + rank_text(wanted_.peer) + ", tag " + std::to_string(wanted_.tag);
}

void MessageSearch::begin(MessageProbe& probe) {
  MessageNumbers& numbers = group_.messages;
  const std::unique_lock issue_order = numbers.issue_order();
  if (wanted_.peer == kAnyRank) {
    numbers.watch(probe.changes(), MessageProbe::kLookAgain);
    peers_ = round_robin(numbers.last_source(wanted_.tag));
    numbers_.resize(peers_.size());
    for (std::size_t i = 0; i < peers_.size(); ++i) numbers_[i] = numbers.next(peers_[i], wanted_.tag, false);
  } else {
    numbers_ = {wanted_.place.number != 0 ? wanted_.place.number
                                          : numbers.take(wanted_.peer, wanted_.tag, false)};
    has_number_ = true;
  }
  const GroupNames& names = group_.calls.names();
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    // this rank does not count: a search over all ranks ends if no other rank can still send
    const bool counts = peers_[i] != names.rank() || peers_.size() == 1;
    probe.look_for(names.to_world(peers_[i]),
                   {{group_id_, StreamClass::kPointToPoint, wanted_.tag}, numbers_[i], 0, 0}, counts);
  }
}

// Takes the number of the found message. Returns false if another receive has taken that number.
bool MessageSearch::take(const MessageProbe::Find& find) {
  if (wanted_.peer != kAnyRank) return true;
  MessageNumbers& numbers = group_.messages;
  const std::unique_lock issue_order = numbers.issue_order();
  if (numbers.next(peers_[find.which], wanted_.tag, false) != numbers_[find.which]) return false;
  numbers.take(peers_[find.which], wanted_.tag, false);
  numbers.set_last_source(wanted_.tag, peers_[find.which]);
  return true;
}

// Starts after the last source, so that a rank that sends continuously does not starve the other
// ranks.
std::vector<Rank> MessageSearch::round_robin(Rank last) const {
  const GroupNames& names = group_.calls.names();
  std::vector<Rank> peers;
  for (Rank i = 1; i <= names.size(); ++i) peers.push_back((last + i) % names.size());
  return peers;
}

Result<FoundMessage> MessageSearch::wait(const GroupCall& call, const WaitContext& context) {
  for (;;) {
    MessageProbe probe(transport_, reactor_);
    begin(probe);
    MessageWatch watch(group_.calls, call, probe, peers_, kVerb);
    WaitContext watched = context;
    watched.watch = &watch;
    const auto text = [this] { return operation(); };
    const Reentry::Scope scope(group_.reentry, watched, text);
    const Status ended = probe.wait(watched);
    group_.messages.unwatch(probe.changes());
    if (!ended.is_ok()) {
      const std::optional<std::size_t> failed = probe.failed();
      const Rank peer = wanted_.peer != kAnyRank ? wanted_.peer : failed ? peers_[*failed] : -1;
      return group_.reports.conclude_message(in_words(ended, peer, watch.peers_have_left()), call,
                                             operation(), watched);
    }
    const MessageProbe::Find* const find = probe.find();
    if (find == nullptr || !take(*find)) continue;
    has_number_ = false;
    group_.calls.done(call);
    return FoundMessage{peers_[find->which], wanted_.tag,       numbers_[find->which], find->nbytes,
                        find->id.digest,     find->description, wanted_.site,          context.deadline};
  }
}

Status MessageSearch::in_words(const Status& ended, Rank peer, bool peers_have_left) const {
  if (ended.code() != Code::kAborted || !peers_have_left) return ended.with_peer(peer);
  if (wanted_.peer == kAnyRank) return has_left("every other rank");
  return has_left(group_.calls.names().full(peer)).with_peer(peer);
}

}  // namespace pc
