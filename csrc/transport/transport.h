// A transport moves messages between this rank and its peers. Docs: docs/protocol.md for what travels.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "base/waiter.h"
#include "session/byte_stream.h"
#include "wire/message.h"

namespace pc {

struct Capabilities {
  bool zero_copy = false;  // a send's memory may be read long after it is posted, by the peer itself
  bool same_host_only = false;
};

// Thread-safety: every method may be called from any thread; post and poll take the transport's lock for microseconds.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;  // catalog name: "tcp", "inproc"
  virtual Capabilities capabilities() const = 0;
  // What a peer needs to reach us, published through the store. Transport-specific text without newline.
  virtual std::string address() const = 0;
  // Connects to every peer: addresses[i] is world rank i's (our own entry is ignored). Collective over the world.
  // An error names the peers that are missing and why. `context` is looked at in slices; abort() ends it too.
  virtual Status connect(const std::vector<std::string>& addresses, const WaitContext& context) = 0;

  virtual void post_send(Rank peer, const SendOp& op) = 0;  // errors arrive as completions
  virtual void post_recv(Rank peer, const RecvOp& op) = 0;
  virtual void post_probe(Rank peer, const ProbeOp& op) = 0;
  // Withdraws every operation that reports to `sink`; none of them completes afterwards, and their memory is free when
  // this returns. The other side of a point-to-point message that it has been told of ends with what `why` means to it.
  // True: nobody has been told of any of them, so their names may be used again.
  virtual bool cancel(const CompletionSink* sink, const Status& why) = 0;
  // The collectives of `group` up to `sequence` have ended here: what is kept of them, and what still comes, is discarded.
  virtual void discard(uint32_t group, uint64_t sequence) = 0;
  // One connected socket per peer for the control plane, by world rank; our own entry is empty. Once, after connect().
  virtual std::vector<ByteStream> take_control_sockets() = 0;
  // Moves whatever can be moved now, without blocking. How many frames moved.
  virtual std::size_t poll() = 0;
  // Readable (epoll, level-triggered) when poll() has something to do.
  virtual int wait_fd() const = 0;
  // Says goodbye to all peers, flushes until `deadline`, closes. Later posts complete with kAborted.
  virtual void shutdown(Deadline deadline) = 0;
  // Completes everything posted, now and later, with `why`. Connections are closed. Never blocks.
  virtual void abort(const Status& why) noexcept = 0;
  // In a forked child: closes every descriptor, so that the parent's death is seen by its peers. Takes no lock, tells
  // nobody; nothing else may be called afterwards, not even the destructor.
  virtual void close_in_child() noexcept = 0;
};

}  // namespace pc
