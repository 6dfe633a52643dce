// All connections to one rank. If there are several, a large message of a collective is split over
// them: each connection carries one part under the message's id, and each part is requested,
// cleared and withdrawn like a message. Other messages of collectives use the first connection.
// Point-to-point messages are not split, but distributed over the connections. All state of such a
// message must be on one link, because the message is withdrawn completely or not at all, and no
// discard() removes a remainder.
//
//   message   |---- part 0 ----|---- part 1 ----|-- part 2 --|
//   over        connection 0     connection 1     connection 2
//
// The parts are equal and consist of whole cache lines; the last one is shorter. This is for
// networks that limit the bandwidth of one connection. Both sides derive from a message's id and
// size whether and how it is split.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/tcp/connection.h"
#include "wire/node_list.h"

namespace pc {

// Thread-safety: none; its transport's lock guards it.
class Peer {
 public:
  explicit Peer(std::size_t eager_bytes) : eager_bytes_(eager_bytes) {}
  ~Peer() = default;
  Peer(const Peer&) = delete;  // posted operations point to this object
  Peer& operator=(const Peer&) = delete;

  void add(std::unique_ptr<Connection> connection) { connections_.push_back(std::move(connection)); }
  const std::vector<std::unique_ptr<Connection>>& connections() const { return connections_; }

  // These do for one peer what the methods of Transport do.
  void post_send(const SendOp& op);
  void post_recv(const RecvOp& op);
  void post_probe(const ProbeOp& op);
  bool cancel(const CompletionSink* sink, const Status& why);
  void discard(uint32_t group, uint64_t sequence);
  void close_group(uint32_t group);
  // serve() reads and writes. Both methods return the number of system calls that moved bytes. When
  // one connection breaks, all of them close.
  std::size_t serve(Connection& connection);
  std::size_t write(Connection& connection);
  void close(const Status& why);
  void close_in_child() noexcept;

 private:
  static constexpr std::size_t kLeastPart = 32UL * 1024;
  // A message that is sent or received in parts. It is the completion sink of each part.
  struct Split final : CompletionSink {
    void complete(Completion&& completion) override { peer->part_ended(*this, std::move(completion)); }
    Split *previous = nullptr, *next = nullptr;
    Peer* peer = nullptr;
    CompletionSink* sink = nullptr;
    uint64_t token = 0;
    std::size_t parts = 0, left = 0;
    Completion end;            // the first failure, else the completion of the last part
    bool is_stopping = false;  // one part has failed; other parts may still be posted
  };
  std::size_t parts_of(const MessageId& id, uint64_t nbytes) const;
  Connection& carrier_of(const MessageId& id) const;  // the connection of a message that is not split
  Split* begin(CompletionSink* sink, uint64_t token, std::size_t parts);
  void part_ended(Split& split, Completion&& completion);
  void finish(Split& split);
  void settle();
  std::size_t read(Connection& connection);
  void flush(Connection& connection);
  void end_siblings(const Connection& broken);

  const std::size_t eager_bytes_;
  std::vector<std::unique_ptr<Connection>> connections_;
  NodePool<Split> pool_;
  NodeList<Split> splits_;
  std::vector<Split*> stopping_;
};

}  // namespace pc
