// Which peers live, and which may be asked something: one that does not read what it gets is left alone.
#pragma once

#include <optional>
#include <vector>

#include "base/deadline.h"
#include "base/types.h"

namespace pc {

class PeerWatch {
 public:
  static constexpr int kMaxUnanswered = 8;

  PeerWatch(Rank me, const std::vector<bool>& far, std::chrono::milliseconds heartbeat);

  Rank size() const { return static_cast<Rank>(peers_.size()); }
  // Neither dead nor gone. False for this rank itself and for what is no rank.
  bool lives(Rank rank) const;
  void remove(Rank rank) { at(rank).lives = false; }

  // It has sent something, so it will answer again. A stopped process whose connection fills up would be taken for dead.
  void heard(Rank rank) { at(rank).unanswered = 0; }
  bool take_question(Rank rank);  // true: ask it now, a NOTICE or PING that it has to answer
  // To be called for every peer; true: send a PING now.
  bool take_ping(Rank rank, TimePoint now);
  std::optional<TimePoint> next_ping() const;

 private:
  struct Peer {
    bool far = false;
    bool lives = true;
    int unanswered = 0;
    TimePoint next_ping;
  };
  Peer& at(Rank rank) { return peers_[static_cast<std::size_t>(rank)]; }
  const Peer& at(Rank rank) const { return peers_[static_cast<std::size_t>(rank)]; }
  static bool wants_pings(const Peer& peer) {
    return peer.far && peer.lives && peer.unanswered < kMaxUnanswered;
  }

  const std::chrono::milliseconds heartbeat_;
  std::vector<Peer> peers_;
};

}  // namespace pc
