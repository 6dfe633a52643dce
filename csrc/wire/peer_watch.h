// Records which peers are alive and which may be sent an inquiry. A peer that does not answer gets
// no more inquiries after kAsked.
#pragma once

#include <optional>
#include <vector>

#include "base/deadline.h"
#include "base/types.h"

namespace pc {

class PeerWatch {
 public:
  // how long inquiries are sent to a peer that does not answer
  static constexpr std::chrono::seconds kAsked{4};

  PeerWatch(Rank me, const std::vector<bool>& remote, std::chrono::milliseconds heartbeat);

  Rank size() const { return static_cast<Rank>(peers_.size()); }
  // Returns true if the rank has neither died nor left. Returns false for this rank itself and for
  // numbers that are no rank.
  bool lives(Rank rank) const;
  void remove(Rank rank) { at(rank).lives = false; }

  // Records that the rank has sent a message, so it may be asked again. A stopped process must not
  // be asked any longer: inquiries would fill its connection, and it would count as dead.
  void received_from(Rank rank) { at(rank).asked_since.reset(); }
  // Returns true if the caller may send the rank a NOTICE or PING that it must answer, and records
  // this inquiry.
  bool take_question(Rank rank, TimePoint now);
  // Call it for every peer. Returns true if a PING must be sent now.
  bool take_ping(Rank rank, TimePoint now);
  std::optional<TimePoint> next_ping() const;

 private:
  struct Peer {
    bool remote = false;
    bool lives = true;
    TimePoint next_ping;
    std::optional<TimePoint> asked_since;  // time of the first inquiry since the peer last sent a message
    bool may_be_asked(TimePoint at) const { return lives && (!asked_since || at < *asked_since + kAsked); }
  };
  Peer& at(Rank rank) { return peers_[static_cast<std::size_t>(rank)]; }
  const Peer& at(Rank rank) const { return peers_[static_cast<std::size_t>(rank)]; }

  const std::chrono::milliseconds heartbeat_;
  std::vector<Peer> peers_;
};

}  // namespace pc
