// Which peers live, and how long they have been silent.
#pragma once

#include <optional>
#include <vector>

#include "base/deadline.h"
#include "base/types.h"

namespace pc {

class PeerWatch {
 public:
  PeerWatch(Rank me, const std::vector<bool>& far, std::chrono::milliseconds heartbeat);

  Rank size() const { return static_cast<Rank>(peers_.size()); }
  // Neither dead nor gone. False for this rank itself and for what is no rank.
  bool lives(Rank rank) const;
  void remove(Rank rank) { at(rank).lives = false; }

  void heard(Rank rank, TimePoint now);
  void asked(Rank rank, TimePoint now);  // it should answer: from now on its silence counts
  // To be called for every peer; true: send a PING now. A peer that does not read gets no more than a few.
  bool take_ping(Rank rank, TimePoint now);
  void ping_answered(Rank rank);
  std::optional<TimePoint> next_ping() const;
  double silent_s(Rank rank, TimePoint now) const;

 private:
  struct Peer {
    bool far = false;
    bool lives = true;
    int unanswered = 0;  // PINGs
    TimePoint next_ping;
    std::optional<TimePoint> silent_since;
  };
  static constexpr int kMaxUnanswered = 8;
  Peer& at(Rank rank) { return peers_[static_cast<std::size_t>(rank)]; }
  const Peer& at(Rank rank) const { return peers_[static_cast<std::size_t>(rank)]; }
  static bool wants_pings(const Peer& peer) {
    return peer.far && peer.lives && peer.unanswered < kMaxUnanswered;
  }

  const std::chrono::milliseconds heartbeat_;
  std::vector<Peer> peers_;
};

}  // namespace pc
