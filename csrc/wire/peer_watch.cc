#include "wire/peer_watch.h"

#include <algorithm>

namespace pc {

PeerWatch::PeerWatch(Rank me, const std::vector<bool>& remote, std::chrono::milliseconds heartbeat)
    : heartbeat_(heartbeat),
      peers_(remote.size()) {
  for (std::size_t i = 0; i < remote.size(); ++i) peers_[i].remote = remote[i];
  if (me >= 0 && me < size()) remove(me);
}

bool PeerWatch::lives(Rank rank) const { return rank >= 0 && rank < size() && at(rank).lives; }

bool PeerWatch::take_question(Rank rank, TimePoint now) {
  if (!lives(rank) || !at(rank).may_be_asked(now)) return false;
  if (!at(rank).asked_since) at(rank).asked_since = now;
  return true;
}

bool PeerWatch::take_ping(Rank rank, TimePoint now) {
  Peer& peer = at(rank);
  if (!peer.remote || peer.next_ping > now || !take_question(rank, now)) return false;
  peer.next_ping = now + heartbeat_;
  return true;
}

std::optional<TimePoint> PeerWatch::next_ping() const {
  std::optional<TimePoint> next;
  for (const Peer& peer : peers_) {
    if (peer.remote && peer.may_be_asked(peer.next_ping))
      next = std::min(next.value_or(peer.next_ping), peer.next_ping);
  }
  return next;
}

}  // namespace pc
