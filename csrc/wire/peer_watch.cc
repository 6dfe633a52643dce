#include "wire/peer_watch.h"

#include <algorithm>

namespace pc {

PeerWatch::PeerWatch(Rank me, const std::vector<bool>& far, std::chrono::milliseconds heartbeat)
    : heartbeat_(heartbeat),
      peers_(far.size()) {
  for (std::size_t i = 0; i < far.size(); ++i) peers_[i].far = far[i];
  if (me >= 0 && me < size()) remove(me);
}

bool PeerWatch::lives(Rank rank) const { return rank >= 0 && rank < size() && at(rank).lives; }

void PeerWatch::heard(Rank rank, TimePoint now) {
  Peer& peer = at(rank);
  peer.silent_since = peer.far ? std::optional(now) : std::nullopt;
}

void PeerWatch::asked(Rank rank, TimePoint now) {
  Peer& peer = at(rank);
  if (!peer.silent_since.has_value()) peer.silent_since = now;
}

bool PeerWatch::take_ping(Rank rank, TimePoint now) {
  Peer& peer = at(rank);
  if (!wants_pings(peer) || peer.next_ping > now) return false;
  asked(rank, now);
  ++peer.unanswered;
  peer.next_ping = now + heartbeat_;
  return true;
}

void PeerWatch::ping_answered(Rank rank) {
  Peer& peer = at(rank);
  peer.unanswered = std::max(0, peer.unanswered - 1);
}

std::optional<TimePoint> PeerWatch::next_ping() const {
  std::optional<TimePoint> next;
  for (const Peer& peer : peers_) {
    if (wants_pings(peer)) next = std::min(next.value_or(peer.next_ping), peer.next_ping);
  }
  return next;
}

double PeerWatch::silent_s(Rank rank, TimePoint now) const {
  if (!lives(rank) || !at(rank).silent_since.has_value()) return 0;
  return std::max(0.0, std::chrono::duration<double>(now - *at(rank).silent_since).count());
}

}  // namespace pc
