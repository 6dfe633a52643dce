// How the ranks of one host exchange the descriptors of their memory and notifiers. One rank leads;
// the other ranks connect to its socket, which has no file (an abstract AF_UNIX address). Any local
// process can connect, so peers are authenticated by SO_PEERCRED and by the leader's token, which
// is distributed through the store.
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

// The listening socket of a rank that may become the leader. Thread-safety: none.
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
  // `expected` are the ranks that may join, without the leader.
  FdExchangeServer(const FdExchangeListener& listener, uint32_t epoch, std::set<Rank> expected);

  // Accepts pending connections and reads their messages. Returns after at most `ms` milliseconds,
  // or as soon as a socket is readable.
  Status serve(int ms);
  bool has(Rank rank) const { return clients_.contains(rank); }
  // Returns why a rank that sent the right token was rejected, or an empty text if it was not
  // rejected.
  std::string refusal_of(Rank rank) const;
  // Sends every client the descriptors of all ranks. A client that could not receive them is
  // removed, and the result has the reason for each such client.
  Result<std::map<Rank, std::string>> distribute(Rank self, const SharedPart& own,
                                                 const WaitContext& context);
  // ends the exchange; returns the parts of the clients that have received all descriptors
  std::vector<PeerPart> take_peers();

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

// The side of every rank that is not the leader. Thread-safety: none.
class FdExchangeClient {
 public:
  // Connects to the leader and sends this rank's descriptors. Returns kTimeout, kAborted or
  // kInterrupted if the context ends the wait; any other error is the reason why this rank cannot
  // take part.
  static Result<FdExchangeClient> begin(const FdEndpoint& leader, Rank self, uint32_t epoch,
                                        const SharedPart& own, const WaitContext& context);
  // Receives the descriptors of the other ranks. Fails if one of these ranks is not in `expected`.
  // Reports to the leader whether this rank could receive the descriptors.
  Result<std::vector<PeerPart>> receive(const std::set<Rank>& expected, const WaitContext& context);

 private:
  explicit FdExchangeClient(Fd socket) : socket_(std::move(socket)) {}
  Result<std::vector<PeerPart>> receive_all(const std::set<Rank>& expected, const WaitContext& context);
  Fd socket_;
};

}  // namespace pc
