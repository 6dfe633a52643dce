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

// Thread-safety: none; the transport's lock guards the link.
class Link {
 public:
  // If `frame_io` is null, no frame may be partly sent or received when operations are withdrawn or
  // a frame arrives.
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
  // their memory may be reused. Returns false if the peer knows of one of them: next_frame() has
  // returned its REQUEST, CLEAR or segment, or one of the peer's frames for it has arrived.
  //
  // If the peer knows of a point-to-point message, it receives a CANCEL with the code of `why`, and
  // the peer's operation ends with kPeerInterrupted, kTimeout or kAborted. For a collective no
  // frame is written, and frames of its messages that still arrive are dropped; the caller must
  // call discard() afterwards.
  bool cancel(const CompletionSink* sink, const Status& why);
  // The collectives of `group` up to `sequence` have ended here, and no operation of them is
  // posted. Drops their buffered messages and all that still arrive. The credit of dropped messages
  // is returned, and their REQUESTs and CLEARs are answered.
  void discard(uint32_t group, uint64_t sequence);
  // The group is closed here, and no operation of it is posted. Drops its buffered messages and all
  // that still arrive.
  void close_group(uint32_t group);

  // Fast path for a small point-to-point message, for frame I/O that writes the frame at once.
  // Returns true if nothing else waits to be written. The caller must then write this eager message
  // now, because its credit is spent.
  bool send_at_once(const MessageId& id, uint64_t nbytes, uint64_t description_nbytes);
  // Fast path for a small receive. Returns true if `header`, which has just arrived, begins an
  // eager message that matches a receive of `id` and `nbytes`, and if taking this message affects
  // nothing that is posted or buffered on this link. After taking it, call received_at_once().
  bool can_receive_at_once(const FrameHeader& header, const MessageId& id, uint64_t nbytes) const;
  void received_at_once(const FrameHeader& header);

  // ---- outgoing. Control frames first, then the active sends round-robin, one segment each.
  //
  // Returns a frame with at most `capacity` bytes of description and payload. Messages above the
  // eager limit are cut, but not below OutFrame::kLeastCut. Returns nullopt if there is nothing to
  // write or the next frame does not fit. A returned frame is "out" until it is written; several
  // may be out at a time.
  std::optional<OutFrame> next_frame(std::size_t capacity = ~std::size_t{0});
  void written();           // the oldest frame that is out has been written entirely
  bool has_posted() const;  // returns true if posted operations have not completed
  bool has_output() const;  // returns true if a frame is out, or next_frame() returns one if there is room

  // ---- incoming, frame by frame.
  //
  // Returns the destination of this header's payload. If the peer violated the protocol, returns an
  // error; the caller must then call fail(). `description` has the bytes that the header announced,
  // with a verified checksum; it is not used after the call.
  Result<PayloadDestination> header_arrived(const FrameHeader& header,
                                            std::span<const std::byte> description = {});
  // Reports that the payload of the last header is in its destination and has a correct checksum.
  // For a frame without payload this call has no effect.
  Status payload_arrived();
  // Replaces payload_arrived() for frame I/O that can read the peer's memory: the payload need not
  // be copied to its destination first.
  Status payload_arrived_at(std::span<const std::byte> where_it_is);

  bool peer_sent_goodbye() const;
  bool sends_goodbye() const;  // send_goodbye() was called
  // Queues GOODBYE after every send posted so far. Later posts complete with kAborted. When the
  // peer's goodbye arrives, the posted receives and the sends that wait for its CLEAR complete with
  // kPeerExited; eager sends are still written.
  void send_goodbye();
  // The connection is gone: completes everything posted, and everything posted later, with `why`.
  // Only messages that arrived completely before an orderly goodbye can still be received. Calls
  // after the first have no effect.
  void fail(const Status& why);

  // Numbers for warnings and errors.
  struct Counts {
    std::size_t posted_sends, posted_recvs, unexpected, requests;
    std::size_t unexpected_nbytes;
    std::size_t clears;     // CLEARs that arrived before their send was posted
    std::size_t withdrawn;  // withdrawn operations that the peer may still send frames for
    std::size_t unanswered, early_clears;
    uint64_t credit;  // eager bytes that this rank may send
    // charged: eager bytes of the peer that were not returned as credit; returnable: the part of
    // `charged` that has left our memory
    uint64_t charged, returnable;
  };
  Counts counts() const;

 private:
  std::unique_ptr<LinkState> state_;
};

}  // namespace pc
