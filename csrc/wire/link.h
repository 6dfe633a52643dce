// The protocol between two ranks, without sockets, clock or thread: matching, eager messages on
// credit, rendezvous (REQUEST / CLEAR) for larger ones, interleaving of segments, control before
// data. Frame I/O (tcp, inproc, a simulator) requests the next frame to write and passes in each
// frame that it has read.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/status.h"
#include "wire/frame.h"
#include "wire/frame_io.h"
#include "wire/message.h"

namespace pc {

struct LinkState;

// Thread-safety: none; its transport's lock guards it.
class Link {
 public:
  // Without a `frame_io`, no frame may be partly moved when operations are withdrawn or a frame
  // arrives.
  Link(Rank me, Rank peer, uint32_t epoch, const LinkLimits& limits = {}, FrameIo* frame_io = nullptr);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Errors are reported as completions. If the outcome of an operation is already known (a
  // buffered message, a known mismatch, the end of the link), it completes inside the call.
  void post_send(const SendOp& op);
  void post_recv(const RecvOp& op);
  void post_probe(const ProbeOp& op);
  // Withdraws every posted operation that reports to `sink`. None of them completes afterwards, and
  // their memory is free. Returns false if the peer knows of one of them: next_frame() has returned
  // its REQUEST, CLEAR or segment, or one of the peer's frames for it has arrived. For a
  // point-to-point message the peer then receives a CANCEL with the code of `why`, and its
  // operation ends with kPeerInterrupted, kTimeout or kAborted. For a collective nothing is
  // written, but nothing more of it is accepted; the caller must call discard() afterwards.
  bool cancel(const CompletionSink* sink, const Status& why);
  // The collectives of `group` up to `sequence` have ended here, and no operation of them is
  // posted. Drops what is buffered of them, and what still arrives: its credit is returned, and its
  // REQUESTs and CLEARs are answered.
  void discard(uint32_t group, uint64_t sequence);
  // The group is closed here, and no operation of it is posted. Discards what is buffered of it,
  // and what is in flight.
  void close_group(uint32_t group);

  // Fast path for small point-to-point messages, for frame I/O that writes or has read the frame at
  // the same moment. Returns true if nothing waits to be written: this eager message may then be
  // written now, and its credit is spent.
  bool send_at_once(const MessageId& id, uint64_t nbytes, uint64_t description_nbytes);
  // Returns true if this eager message (its header has just arrived) is the one for a receive of
  // that name, digest and size, and nothing else that could affect it is posted or buffered on this
  // link. received_at_once() reports that the receive got it.
  bool can_receive_at_once(const FrameHeader& header, const MessageId& id, uint64_t nbytes) const;
  void received_at_once(const FrameHeader& header);

  // ---- outgoing. Control frames first, then the active sends round-robin, one segment each.
  // Returns a frame with at most `capacity` bytes of description and payload. Messages above the
  // eager limit are cut, but not below OutFrame::kLeastCut. Returns nullopt if there is nothing to
  // write or the next frame does not fit. Several frames may be out at a time.
  std::optional<OutFrame> next_frame(std::size_t capacity = ~std::size_t{0});
  void written();           // the oldest frame that is out has been written entirely
  bool has_posted() const;  // operations that have not completed
  bool has_output() const;  // next_frame() returns a frame if there is room, or one is out

  // ---- incoming, frame by frame.
  // Returns the destination of this header's payload, or the peer's error (then call fail()).
  // `description` is the bytes that the header announced, with a checksum that was right; it is not
  // needed after the call.
  Result<PayloadDestination> header_arrived(const FrameHeader& header,
                                            std::span<const std::byte> description = {});
  // The payload of the last header is in its destination, and its checksum was right. A frame
  // without payload is done when header_arrived() returns; this call is then harmless.
  Status payload_arrived();
  // Replaces payload_arrived() for frame I/O that has access to the peer's memory: the payload need
  // not be stored first.
  Status payload_arrived_at(std::span<const std::byte> where_it_is);

  bool peer_sent_goodbye() const;
  bool sends_goodbye() const;  // send_goodbye() was called
  // Queues GOODBYE behind every send posted so far. Later posts complete with kAborted. The peer's
  // goodbye completes the posted receives, and the sends that wait for its CLEAR, with kPeerExited;
  // eager sends are still written.
  void send_goodbye();
  // The connection is gone: completes everything posted, and everything posted later, with `why`.
  // Only messages that arrived completely before an orderly goodbye can still be received. Calls
  // after the first have no effect.
  void fail(const Status& why);

  // For warnings and errors: what this link waits for, and what it remembers.
  struct Counts {
    std::size_t posted_sends, posted_recvs, unexpected, requests;
    std::size_t unexpected_nbytes;
    std::size_t clears;     // that arrived before their send was posted
    std::size_t withdrawn;  // operations of this rank that the peer has not confirmed to be over
    std::size_t unanswered, early_clears;
    uint64_t credit;               // eager bytes that this rank may send
    uint64_t charged, returnable;  // eager bytes that the peer has sent; the part that has left our memory
  };
  Counts counts() const;

 private:
  std::unique_ptr<LinkState> state_;
};

}  // namespace pc
