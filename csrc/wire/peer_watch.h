// Which peers live, and which may be asked something: one that does not read what it gets is left alone.
#pragma once

#include <optional>
#include <vector>

#include "base/deadline.h"
#include "base/types.h"

namespace pc {

class PeerWatch {
 public:
  static constexpr std::chrono::seconds kAsked{4};  // so long a peer is asked that answers nothing

  PeerWatch(Rank me, const std::vector<bool>& remote, std::chrono::milliseconds heartbeat);

  Rank size() const { return static_cast<Rank>(peers_.size()); }
  // Neither dead nor gone. False for this rank itself and for what is no rank.
  bool lives(Rank rank) const;
  void remove(Rank rank) { at(rank).lives = false; }

  // It has sent something, so it will answer again. A stopped process whose connection fills up would be taken for dead.
  void received_from(Rank rank) { at(rank).asked_since.reset(); }
  bool take_question(Rank rank, TimePoint now);  // true: ask it now, a NOTICE or PING that it has to answer
  // To be called for every peer; true: send a PING now.
  bool take_ping(Rank rank, TimePoint now);
  std::optional<TimePoint> next_ping() const;

 private:
  struct Peer {
    bool remote = false;
    bool lives = true;
    TimePoint next_ping;
    std::optional<TimePoint> asked_since;  // and nothing was heard
    bool may_be_asked(TimePoint at) const { return lives && (!asked_since || at < *asked_since + kAsked); }
  };
  Peer& at(Rank rank) { return peers_[static_cast<std::size_t>(rank)]; }
  const Peer& at(Rank rank) const { return peers_[static_cast<std::size_t>(rank)]; }

  const std::chrono::milliseconds heartbeat_;
  std::vector<Peer> peers_;
};

}  // namespace pc
