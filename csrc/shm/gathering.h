// How ranks of one host hand round the descriptors of their memory and notifiers: one of them leads, the
// others come to its socket, which stands in no folder (an abstract AF_UNIX address). Anybody on the host may
// knock there, so nothing is taken from who has another user or does not know the leader's token, which ranks
// learn through the store.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "base/waiter.h"
#include "shm/gathering_words.h"
#include "shm/local_peers_process.h"
#include "wire/doorkeeper.h"

namespace pc {

// Of a rank that may have to lead. Thread-safety: none.
class GatheringPlace {
 public:
  static Result<GatheringPlace> open();
  const Invitation& invitation() const { return invitation_; }
  int fd() const { return listener_.get(); }

 private:
  GatheringPlace(Fd listener, const Invitation& invitation)
      : listener_(std::move(listener)),
        invitation_(invitation) {}
  Fd listener_;
  Invitation invitation_;
};

// The leader's side. Thread-safety: none.
class Reception {
 public:
  Reception(const GatheringPlace& place, uint32_t epoch, std::set<Rank> expected);  // not its own rank

  // Lets in who waits at the door; returns after `ms` milliseconds at most, sooner if anything has happened.
  Status attend(int ms);
  bool has(Rank rank) const { return guests_.contains(rank); }
  // Why one that knows the token was turned away; empty: it was not.
  std::string refusal_of(Rank rank) const;
  // Gives all who are here everybody's descriptors. Returns for each that could not take them the reason; it
  // is gone then.
  Result<std::map<Rank, std::string>> hand_round(Rank self, const SharedPart& own,
                                                 const WaitContext& context);
  std::vector<PeerPart> take_peers();  // those who have everything. Ends the reception

 private:
  struct Guest {
    Fd socket;
    PeerPart part;
  };
  void accept_all(TimePoint now);
  void hear(int stranger);
  void admit(Rank rank, Fd socket, std::vector<Fd> descriptors);
  Status give_all(const Guest& guest, Rank self, const SharedPart& own, const WaitContext& context);

  const GatheringPlace& place_;
  const uint32_t epoch_;
  const std::set<Rank> expected_;
  std::map<int, Fd> strangers_;
  Doorkeeper door_;
  std::map<Rank, Guest> guests_;
  std::map<Rank, std::string> refused_;
};

// Everybody else's side. Thread-safety: none.
class Visit {
 public:
  // Comes to the leader with this rank's descriptors. kTimeout, kAborted, kInterrupted: the context ended it;
  // any other error says why this rank cannot come.
  static Result<Visit> begin(const Invitation& leader, Rank self, uint32_t epoch, const SharedPart& own,
                             const WaitContext& context);
  // What the others brought, each of them one of `expected`. The leader hears whether this rank could take
  // it.
  Result<std::vector<PeerPart>> receive(const std::set<Rank>& expected, const WaitContext& context);

 private:
  explicit Visit(Fd socket) : socket_(std::move(socket)) {}
  Result<std::vector<PeerPart>> receive_all(const std::set<Rank>& expected, const WaitContext& context);
  Fd socket_;
};

}  // namespace pc
