#include "transport/tcp/peer.h"

#include <algorithm>
#include <utility>

namespace pc {
namespace {

// Returns the size of the part that begins at `offset`, where each part has at most `most` bytes.
std::size_t part_nbytes(uint64_t nbytes, uint64_t offset, std::size_t most) {
  return static_cast<std::size_t>(std::min<uint64_t>(most, nbytes - offset));
}

std::size_t most_per_part(uint64_t nbytes, std::size_t parts) {
  constexpr uint64_t kLine = 64;  // segments begin at multiples of a cache line
  return static_cast<std::size_t>(((nbytes - 1) / parts / kLine + 1) * kLine);
}

}  // namespace

std::size_t Peer::parts_of(const MessageId& id, uint64_t nbytes) const {
  const bool may_be = connections_.size() > 1 && id.stream.klass == StreamClass::kCollective;
  if (!may_be || nbytes <= eager_bytes_ || nbytes < 2 * kLeastPart) return 1;
  return std::min(connections_.size(), static_cast<std::size_t>(nbytes / kLeastPart));
}

Connection& Peer::carrier_of(const MessageId& id) const {
  const uint64_t k = connections_.size();
  // Without the quotient, if two kinds of messages alternate, such as headers and bodies, each kind
  // could always use the same connections.
  const uint64_t spread = id.stream.tag + id.sequence + id.sequence / k;
  return *connections_[id.stream.klass == StreamClass::kPointToPoint ? spread % k : 0];
}

void Peer::post_send(const SendOp& op) {
  const uint64_t nbytes = op.payload.size();
  const std::size_t parts = parts_of(op.id, nbytes);
  if (parts == 1) {
    Connection& carrier = carrier_of(op.id);
    // The peer's CLEAR may be in the socket already; then no REQUEST is needed.
    if (nbytes > eager_bytes_) read(carrier);
    carrier.link().post_send(op);
    flush(carrier);
    return settle();
  }
  Split* const split = begin(op.completions, op.token, parts);
  const std::size_t most = most_per_part(nbytes, parts);
  SendOp part = op;
  part.completions = split;
  part.message_nbytes = nbytes;
  for (std::size_t i = 0; i < parts; ++i, part.offset += most) {
    read(*connections_[i]);
    part.payload = op.payload.slice(part.offset, part_nbytes(nbytes, part.offset, most));
    connections_[i]->link().post_send(part);
  }
  for (std::size_t i = 0; i < parts; ++i) flush(*connections_[i]);
  settle();
}

void Peer::post_recv(const RecvOp& op) {
  const std::size_t parts = parts_of(op.id, op.nbytes);
  const bool fits = op.consumer != nullptr || op.payload.size() >= op.nbytes;
  if (parts == 1 || !fits) {  // if it does not fit, the link reports that the memory is too small
    Connection& carrier = carrier_of(op.id);
    carrier.link().post_recv(op);
    flush(carrier);
    return settle();
  }
  Split* const split = begin(op.completions, op.token, parts);
  const std::size_t most = most_per_part(op.nbytes, parts);
  RecvOp part = op;
  part.completions = split;
  for (std::size_t i = 0; i < parts; ++i, part.offset += most) {
    part.part_nbytes = part_nbytes(op.nbytes, part.offset, most);
    if (op.consumer == nullptr) part.payload = op.payload.subspan(part.offset, part.part_nbytes);
    connections_[i]->link().post_recv(part);
  }
  for (std::size_t i = 0; i < parts; ++i) flush(*connections_[i]);
  settle();
}

void Peer::post_probe(const ProbeOp& op) { carrier_of(op.id).link().post_probe(op); }

bool Peer::cancel(const CompletionSink* sink, const Status& why) {
  bool unannounced = true;
  for (const std::unique_ptr<Connection>& connection : connections_)
    unannounced = connection->link().cancel(sink, why) && unannounced;
  const auto is_theirs = [&](const Split& split) { return split.sink == sink; };
  while (Split* const split = splits_.find(is_theirs)) {
    unannounced = unannounced && split->left == split->parts;
    for (const std::unique_ptr<Connection>& connection : connections_)
      unannounced = connection->link().cancel(split, why) && unannounced;
    std::erase(stopping_, split);
    splits_.remove(split);
    pool_.give_back(split);
  }
  for (const std::unique_ptr<Connection>& connection : connections_) flush(*connection);
  settle();
  return unannounced;
}

void Peer::discard(uint32_t group, uint64_t sequence) {
  for (const std::unique_ptr<Connection>& connection : connections_) {
    connection->link().discard(group, sequence);
    flush(*connection);
  }
  settle();
}

void Peer::close_group(uint32_t group) {
  for (const std::unique_ptr<Connection>& connection : connections_) {
    connection->link().close_group(group);
    flush(*connection);
  }
  settle();
}

std::size_t Peer::serve(Connection& connection) {
  const std::size_t moved = read(connection);
  return moved + write(connection);
}

std::size_t Peer::write(Connection& connection) {
  const bool was_open = connection.open();
  const std::size_t moved = was_open ? connection.write() : 0;
  if (was_open && !connection.open()) end_siblings(connection);
  settle();
  return moved;
}

void Peer::close(const Status& why) {
  for (const std::unique_ptr<Connection>& connection : connections_) {
    if (connection->open()) connection->close(why);
  }
  settle();
}

void Peer::close_in_child() noexcept {
  for (const std::unique_ptr<Connection>& connection : connections_) connection->close_in_child();
}

// ---- Parts.

Peer::Split* Peer::begin(CompletionSink* sink, uint64_t token, std::size_t parts) {
  Split* const split = pool_.take();
  split->peer = this;
  split->sink = sink;
  split->token = token;
  split->parts = split->left = parts;
  splits_.push_back(split);
  return split;
}

// Called from within a link, so it only records a failed message; settle() withdraws the other
// parts.
void Peer::part_ended(Split& split, Completion&& completion) {
  if (completion.token == kLateMismatchToken) {
    if (split.sink != nullptr) split.sink->complete(std::move(completion));
    return;
  }
  --split.left;
  if (split.end.status.is_ok()) split.end = std::move(completion);
  if (!split.is_stopping && split.left == 0) return finish(split);
  if (split.is_stopping || split.end.status.is_ok()) return;
  split.is_stopping = true;
  stopping_.push_back(&split);
}

void Peer::finish(Split& split) {
  CompletionSink* const sink = split.sink;
  Completion end = std::move(split.end);
  end.token = split.token;
  splits_.remove(&split);
  pool_.give_back(&split);
  if (sink != nullptr) sink->complete(std::move(end));
}

// If one part has failed, withdraws the other parts before it informs the sink, so that no part
// uses the memory after that.
void Peer::settle() {
  while (!stopping_.empty()) {
    Split* const split = stopping_.back();
    stopping_.pop_back();
    for (const std::unique_ptr<Connection>& connection : connections_)
      connection->link().cancel(split, split->end.status);
    for (const std::unique_ptr<Connection>& connection : connections_) flush(*connection);
    finish(*split);
  }
}

// ---- Connections.

std::size_t Peer::read(Connection& connection) {
  if (!connection.open()) return 0;
  const std::size_t moved = connection.read();
  if (!connection.open()) end_siblings(connection);
  return moved;
}

void Peer::flush(Connection& connection) {
  if (!connection.link().has_output()) return;
  connection.write();
  if (!connection.open()) end_siblings(connection);
}

// After an orderly goodbye, each connection closes by itself when all its data has been read. If
// one connection breaks, the other connections may still hold data that the peer sent before its
// end, including its goodbye. That data is read before those connections are closed.
void Peer::end_siblings(const Connection& broken) {
  if (!broken.has_failed()) return;
  for (const std::unique_ptr<Connection>& connection : connections_) {
    connection->read_the_rest();
    if (connection->open()) connection->close(broken.why_closed());
  }
}

}  // namespace pc
