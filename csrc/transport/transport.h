// A transport moves messages between this rank and its peers. Docs: docs/protocol.md for what travels.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "base/waiter.h"
#include "net/byte_stream.h"
#include "wire/message.h"

namespace pc {

struct Capabilities {
  bool zero_copy = false;  // a send's memory may be read long after it is posted, by the peer itself
  bool same_host_only = false;
};

// What a reactor waits for.
class Pollable {
 public:
  virtual std::string_view name() const = 0;  // a transport's catalog name: "tcp", "inproc"
  // Moves whatever can be moved now, without blocking. How many frames moved.
  virtual std::size_t poll() = 0;
  // Readable (epoll, level-triggered) when poll() has something to do.
  virtual int wait_fd() const = 0;
  // Around every sleep on wait_fd(): what makes it readable only for those who sleep does so in between. False: poll() has
  // something to do now.
  virtual bool fall_asleep() { return true; }
  virtual void wake_up() {}

 protected:
  ~Pollable() = default;
};

// Thread-safety: every method may be called from any thread; post and poll take the transport's lock for microseconds.
class Transport : public Pollable {
 public:
  virtual ~Transport() = default;
  virtual Capabilities capabilities() const = 0;
  virtual std::string_view path_to(Rank /*peer*/) const { return name(); }  // of messages, for people
  // What a peer needs to reach us, published through the store. Transport-specific text without newline.
  virtual std::string address() const = 0;
  // Connects to every peer: addresses[i] is world rank i's (our own entry is ignored). Collective over the world.
  // An error names the peers that are missing and why. `context` is looked at in slices; abort() ends it too.
  virtual Status connect(const std::vector<std::string>& addresses, const WaitContext& context) = 0;

  virtual void post_send(Rank peer, const SendOp& op) = 0;  // errors arrive as completions
  virtual void post_recv(Rank peer, const RecvOp& op) = 0;
  virtual void post_probe(Rank peer, const ProbeOp& op) = 0;
  // The short way of a small message, of which nobody is told. False: nothing has happened, and it is to be posted. A receive
  // waits for as long as it is worth to stay awake for.
  virtual bool send_at_once(Rank /*peer*/, const SendOp& /*op*/) { return false; }
  virtual bool recv_at_once(Rank /*peer*/, const RecvOp& /*op*/) { return false; }
  // Withdraws every operation that reports to `sink`; none of them completes afterwards, and their memory is free when
  // this returns. The other side of a point-to-point message that it has been told of ends with what `why` means to it.
  // True: nobody has been told of any of them, so their names may be used again.
  virtual bool cancel(const CompletionSink* sink, const Status& why) = 0;
  // The collectives of `group` up to `sequence` have ended here: what is kept of them, and what still comes, is discarded.
  virtual void discard(uint32_t group, uint64_t sequence) = 0;
  // This rank has closed that group of these ranks of the world: what is kept of it, messages too, and what still comes, is
  // discarded. No group has that number again.
  virtual void close_group(uint32_t group, std::span<const Rank> members) = 0;
  // One connected socket per peer for the control plane, by world rank; our own entry is empty. Once, after connect().
  virtual std::vector<ByteStream> take_control_sockets() = 0;
  // Says goodbye to all peers, flushes until `deadline`, closes. Later posts complete with kAborted.
  virtual void shutdown(Deadline deadline) = 0;
  // Completes everything posted, now and later, with `why`. Connections are closed. Never blocks.
  virtual void abort(const Status& why) noexcept = 0;
  // In a forked child: closes every descriptor, so that the parent's death is seen by its peers. Takes no lock, tells
  // nobody; nothing else may be called afterwards, not even the destructor.
  virtual void close_in_child() noexcept = 0;
};

}  // namespace pc
