// The protocol between two ranks, without sockets, clock or thread: matching, eager messages in credit, request/clear for
// larger ones, interleaving of segments, control before data. A byte mover (tcp, inproc, a simulator) asks for the next
// frame to write and hands over each frame that it has read.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/status.h"
#include "wire/frame.h"
#include "wire/message.h"

namespace pc {

struct LinkLimits {                              // equal on both sides; part of the protocol version
  std::size_t segment_bytes = kMaxSegmentBytes;  // at most kMaxSegmentBytes, a multiple of 64
  std::size_t eager_bytes = kEagerBytes;
  std::size_t credit_bytes =
      1024UL * 1024;  // unexpected eager bytes (headers counted) that a peer may have in our memory
  uint32_t max_requests = 4096;  // unanswered REQUESTs a peer may have with us
};

// Thread-safety: none; its transport's lock guards it.
class Link {
 public:
  Link(Rank me, Rank peer, uint32_t epoch, const LinkLimits& limits = {});
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Errors arrive as completions. What is already here (a buffered message, a known mismatch, the end of the link)
  // completes inside the call.
  void post_send(const SendOp& op);
  void post_recv(const RecvOp& op);
  // Withdraws every posted operation that reports to `sink`; none of them completes afterwards. What the peer has been
  // told of (a REQUEST, CLEAR or segment that next_frame() gave out, a payload on its way in) cannot be taken back:
  // then false, and the caller must call fail() and close the connection before the memory is used again.
  bool cancel(const CompletionSink* sink);

  // ---- outgoing. Control frames first, then the active sends in turn, one segment each.
  struct OutFrame {
    HeaderBytes header;
    std::span<const std::byte> payload;  // valid until it is written() or fail(); trailer is the mover's job
  };
  std::optional<OutFrame> next_frame();  // nothing to write: nullopt. Several may be out at a time
  void written();                        // the oldest frame that is out has been written entirely
  bool has_output() const;               // next_frame() has one to give, or one is out

  // ---- incoming, frame by frame.
  struct Destination {
    std::span<std::byte> where;  // segment_nbytes bytes to put the payload; staging if it is consumed later
  };
  // What the peer did wrong (then call fail()), or where this header's payload goes.
  Result<Destination> header_arrived(const FrameHeader& header);
  // The payload of the last header is in its destination and its checksum was right. A frame without payload is done
  // when header_arrived() returns; calling this all the same does no harm.
  Status payload_arrived();
  // For movers that see the peer's memory: a payload that need not be stored first. Instead of payload_arrived().
  Status payload_arrived_at(std::span<const std::byte> where_it_is);

  bool peer_said_goodbye() const;
  // Queues GOODBYE behind every send posted so far; later posts complete with kAborted. The peer's goodbye completes our
  // posted receives and the sends that wait for its CLEAR with kPeerExited; eager sends still go out.
  void say_goodbye();
  // The connection is gone: completes everything posted, and everything posted later, with `why`. Only messages that
  // had arrived whole before an orderly goodbye can still be received. Calls after the first change nothing.
  void fail(const Status& why);

  // For warnings and errors: what this link still waits for.
  struct Counts {
    std::size_t posted_sends, posted_recvs, unexpected, requests;
    std::size_t unexpected_nbytes;
  };
  Counts counts() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pc
