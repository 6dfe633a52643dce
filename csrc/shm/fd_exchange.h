// How ranks of one host hand round the descriptors of their memory and notifiers: one of them leads, the
// others come to its socket, which stands in no folder (an abstract AF_UNIX address). Any process of the host
// may connect there, so nothing is taken from who has another user or does not know the leader's token, which
// ranks learn through the store.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "base/waiter.h"
#include "shm/fd_exchange_messages.h"
#include "shm/local_peers_process.h"
#include "wire/handshake_limiter.h"

namespace pc {

// Of a rank that may have to lead. Thread-safety: none.
class FdExchangeListener {
 public:
  static Result<FdExchangeListener> open();
  const FdEndpoint& endpoint() const { return endpoint_; }
  int fd() const { return listener_.get(); }

 private:
  FdExchangeListener(Fd listener, const FdEndpoint& endpoint)
      : listener_(std::move(listener)),
        endpoint_(endpoint) {}
  Fd listener_;
  FdEndpoint endpoint_;
};

// The leader's side. Thread-safety: none.
class FdExchangeServer {
 public:
  FdExchangeServer(const FdExchangeListener& listener, uint32_t epoch,
                   std::set<Rank> expected);  // not its own rank

  // Accepts pending connections; returns after `ms` milliseconds at most, sooner if anything has happened.
  Status serve(int ms);
  bool has(Rank rank) const { return clients_.contains(rank); }
  // Why one that knows the token was rejected; empty: it was not.
  std::string refusal_of(Rank rank) const;
  // Gives all who are here everybody's descriptors. Returns for each that could not take them the reason; it
  // is gone then.
  Result<std::map<Rank, std::string>> distribute(Rank self, const SharedPart& own,
                                                 const WaitContext& context);
  std::vector<PeerPart> take_peers();  // those who have everything. Ends the exchange

 private:
  struct Client {
    Fd socket;
    PeerPart part;
  };
  void accept_all(TimePoint now);
  void read_join(int pending);
  void admit(Rank rank, Fd socket, std::vector<Fd> descriptors);
  Status send_all(const Client& client, Rank self, const SharedPart& own, const WaitContext& context);

  const FdExchangeListener& listener_;
  const uint32_t epoch_;
  const std::set<Rank> expected_;
  std::map<int, Fd> pending_;
  HandshakeLimiter limiter_;
  std::map<Rank, Client> clients_;
  std::map<Rank, std::string> refused_;
};

// Everybody else's side. Thread-safety: none.
class FdExchangeClient {
 public:
  // Comes to the leader with this rank's descriptors. kTimeout, kAborted, kInterrupted: the context ended it;
  // any other error says why this rank cannot come.
  static Result<FdExchangeClient> begin(const FdEndpoint& leader, Rank self, uint32_t epoch,
                                        const SharedPart& own, const WaitContext& context);
  // What the others brought, each of them one of `expected`. The leader hears whether this rank could take
  // it.
  Result<std::vector<PeerPart>> receive(const std::set<Rank>& expected, const WaitContext& context);

 private:
  explicit FdExchangeClient(Fd socket) : socket_(std::move(socket)) {}
  Result<std::vector<PeerPart>> receive_all(const std::set<Rank>& expected, const WaitContext& context);
  Fd socket_;
};

}  // namespace pc
