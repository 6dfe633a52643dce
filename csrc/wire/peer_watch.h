// Which peers are alive, and which may be asked something: a peer that does not read its messages
// is left alone.
#pragma once

#include <optional>
#include <vector>

#include "base/deadline.h"
#include "base/types.h"

namespace pc {

class PeerWatch {
 public:
  static constexpr std::chrono::seconds kAsked{4};  // for how long a peer that never answers is asked

  PeerWatch(Rank me, const std::vector<bool>& remote, std::chrono::milliseconds heartbeat);

  Rank size() const { return static_cast<Rank>(peers_.size()); }
  // Returns true if the rank is neither dead nor gone. Returns false for this rank itself and for
  // numbers that are no rank.
  bool lives(Rank rank) const;
  void remove(Rank rank) { at(rank).lives = false; }

  // The rank has sent something, so it will answer again. Questions to a stopped process would fill
  // its connection, and it would be taken for dead.
  void received_from(Rank rank) { at(rank).asked_since.reset(); }
  bool take_question(Rank rank, TimePoint now);  // true: ask it now, by a NOTICE or PING that it must answer
  // Call it for every peer. Returns true if a PING must be sent now.
  bool take_ping(Rank rank, TimePoint now);
  std::optional<TimePoint> next_ping() const;

 private:
  struct Peer {
    bool remote = false;
    bool lives = true;
    TimePoint next_ping;
    std::optional<TimePoint> asked_since;  // and nothing has arrived since
    bool may_be_asked(TimePoint at) const { return lives && (!asked_since || at < *asked_since + kAsked); }
  };
  Peer& at(Rank rank) { return peers_[static_cast<std::size_t>(rank)]; }
  const Peer& at(Rank rank) const { return peers_[static_cast<std::size_t>(rank)]; }

  const std::chrono::milliseconds heartbeat_;
  std::vector<Peer> peers_;
};

}  // namespace pc
