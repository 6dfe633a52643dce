// All connections to one rank. Where there are several, a large message of a collective is split over them: each carries a part of
// it under the message's name, which is asked for, cleared and withdrawn as a message is. Its other messages go over the first
// connection. Those of send and recv take turns whole: what is known of one must lie on one link, for either all or nothing of it
// is taken back, and nobody discards what is left of it.
//
//   message   |---- part 0 ----|---- part 1 ----|-- part 2 --|      equal parts of whole cache lines, the last one shorter
//   over        connection 0     connection 1     connection 2
//
// For networks that limit what one connection gets. Both sides see by name and size what is split, and how.
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
  Peer(const Peer&) = delete;  // what is on its way points here
  Peer& operator=(const Peer&) = delete;

  void add(std::unique_ptr<Connection> connection) { connections_.push_back(std::move(connection)); }
  const std::vector<std::unique_ptr<Connection>>& connections() const { return connections_; }

  // As the transport's.
  void post_send(const SendOp& op);
  void post_recv(const RecvOp& op);
  void post_probe(const ProbeOp& op);
  bool cancel(const CompletionSink* sink, const Status& why);
  void discard(uint32_t group, uint64_t sequence);
  void close_group(uint32_t group);
  // Reads and writes. How often something moved. When one connection breaks, so do the others.
  std::size_t serve(Connection& connection);
  std::size_t write(Connection& connection);
  void close(const Status& why);
  void close_in_child() noexcept;

 private:
  static constexpr std::size_t kLeastPart = 32UL * 1024;
  // A message on its way in parts: the sink of each.
  struct Split final : CompletionSink {
    void complete(Completion&& completion) override { peer->part_ended(*this, std::move(completion)); }
    Split *previous = nullptr, *next = nullptr;
    Peer* peer = nullptr;
    CompletionSink* sink = nullptr;
    uint64_t token = 0;
    std::size_t parts = 0, left = 0;
    Completion end;            // the first failure, else the last part's
    bool is_stopping = false;  // one part has failed, others may be posted still
  };
  std::size_t parts_of(const MessageId& id, uint64_t nbytes) const;
  Connection& carrier_of(const MessageId& id) const;  // of a message that is not split
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
