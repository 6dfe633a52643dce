// A transport moves messages between this rank and its peers. docs/protocol.md describes the
// messages.
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
  bool zero_copy = false;  // the peer may read a send's memory long after the send is posted
  bool same_host_only = false;
};

// A source of events for which a reactor waits.
class Pollable {
 public:
  virtual std::string_view name() const = 0;  // a transport's catalog name: "tcp", "inproc"
  // Moves whatever can be moved now, without blocking. Returns the number of frames moved.
  virtual std::size_t poll() = 0;
  // Returns a descriptor that is readable (epoll, level-triggered) when poll() has something to do.
  virtual int wait_fd() const = 0;
  // Called before and after every sleep on wait_fd(). Some sources make wait_fd() readable only
  // between these two calls. fall_asleep() returns false if poll() has something to do now.
  virtual bool fall_asleep() { return true; }
  virtual void wake_up() {}

 protected:
  ~Pollable() = default;
};

// Thread-safety: every method may be called from any thread; post and poll take the transport's
// lock for microseconds.
class Transport : public Pollable {
 public:
  virtual ~Transport() = default;
  virtual Capabilities capabilities() const = 0;
  // the path of messages to the peer, as users see it
  virtual std::string_view path_to(Rank /*peer*/) const { return name(); }
  // Returns the text that a peer needs to reach this rank. It is published through the store. Its
  // format depends on the transport; it has no newline.
  virtual std::string address() const = 0;
  // Connects to every peer; addresses[i] is the address of world rank i, and this rank's own entry
  // is ignored. Collective over the world. An error names the missing peers and the reasons.
  // `context` is checked in slices; abort() ends the call too.
  virtual Status connect(const std::vector<std::string>& addresses, const WaitContext& context) = 0;

  virtual void post_send(Rank peer, const SendOp& op) = 0;  // errors arrive as completions
  virtual void post_recv(Rank peer, const RecvOp& op) = 0;
  virtual void post_probe(Rank peer, const ProbeOp& op) = 0;
  // The fast path of a small message, without a completion. If a method returns false, nothing has
  // happened and the caller must post the operation. recv_at_once() waits only briefly, without
  // sleeping.
  virtual bool send_at_once(Rank /*peer*/, const SendOp& /*op*/) { return false; }
  virtual bool recv_at_once(Rank /*peer*/, const RecvOp& /*op*/) { return false; }
  // Withdraws every operation that reports to `sink`. No withdrawn operation completes afterwards,
  // and its memory may be reused. If the peer has been informed of a withdrawn point-to-point
  // message, the peer's operation ends with the error that corresponds to `why`. Returns true if no
  // peer has been informed of any withdrawn operation; the message ids may then be used again.
  virtual bool cancel(const CompletionSink* sink, const Status& why) = 0;
  // The collectives of `group` up to `sequence` have ended on this rank. Discards all data that is
  // kept for them or that still arrives.
  virtual void discard(uint32_t group, uint64_t sequence) = 0;
  // This rank has closed `group`; `members` are world ranks. Discards all data that is kept for the
  // group or that still arrives, including messages. No later group has the same number.
  virtual void close_group(uint32_t group, std::span<const Rank> members) = 0;
  // Returns one connected socket per peer for the control plane, by world rank; this rank's own
  // entry is empty. Call it once, after connect().
  virtual std::vector<ByteStream> take_control_sockets() = 0;
  // Sends goodbye to all peers, flushes until `deadline`, and closes. Later posts complete with
  // kAborted.
  virtual void shutdown(Deadline deadline) = 0;
  // Completes all posted operations and all later ones with `why`, and closes the connections.
  // Never blocks.
  virtual void abort(const Status& why) noexcept = 0;
  // For a forked child: closes every descriptor, so that the peers notice the death of the parent.
  // Takes no lock and notifies no peer. No other method may be called afterwards, not even the
  // destructor.
  virtual void close_in_child() noexcept = 0;
};

}  // namespace pc
