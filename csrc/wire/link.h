// The protocol between two ranks, without sockets, clock or thread: matching, eager messages in credit, request/clear for
// larger ones, interleaving of segments, control before data. Frame I/O (tcp, inproc, a simulator) asks for
// the next frame to write and hands over each frame that it has read.
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
  // Without a `frame_io` nothing may be half moved when operations are withdrawn or a frame arrives.
  Link(Rank me, Rank peer, uint32_t epoch, const LinkLimits& limits = {}, FrameIo* frame_io = nullptr);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Errors arrive as completions. What is already here (a buffered message, a known mismatch, the end of the link)
  // completes inside the call.
  void post_send(const SendOp& op);
  void post_recv(const RecvOp& op);
  void post_probe(const ProbeOp& op);
  // Withdraws every posted operation that reports to `sink`; none of them completes afterwards, and their memory is free.
  // False: the peer has been told of one (a REQUEST, CLEAR or segment that next_frame() gave out, or one of its own has
  // arrived). Of a point-to-point message it then learns by CANCEL, with the code of `why`; its half ends with
  // kPeerInterrupted, kTimeout or kAborted. Of a collective nothing is written, but from now on nothing of it is taken;
  // discard() has to follow.
  bool cancel(const CompletionSink* sink, const Status& why);
  // The collectives of `group` up to `sequence` have ended here and nothing of them is posted: what is kept of them, and
  // what still comes, is dropped, its credit is returned, its REQUESTs and CLEARs are answered.
  void discard(uint32_t group, uint64_t sequence);
  // The group is closed here and nothing of it is posted: what is kept of it, and what was on its way, is discarded.
  void close_group(uint32_t group);

  // The short way of small point-to-point messages, for a frame I/O that writes or has read the frame in the
  // same moment. True: this eager message may be written now, before everything else, and its credit is
  // spent. Nothing waits to be written.
  bool send_at_once(const MessageId& id, uint64_t nbytes, uint64_t description_nbytes);
  // True: this eager message, whose header has just come, is what a receive of that name, digest and size is to get. Nothing
  // else is posted or kept on this link that might have a say in it. received_at_once() says that it got it.
  bool can_receive_at_once(const FrameHeader& header, const MessageId& id, uint64_t nbytes) const;
  void received_at_once(const FrameHeader& header);

  // ---- outgoing. Control frames first, then the active sends in turn, one segment each.
  // One with at most `capacity` bytes of description and payload. Messages above the eager limit are cut, not
  // below OutFrame::kLeastCut; nothing to write, or what is next does not fit: nullopt. Several may be out at
  // a time.
  std::optional<OutFrame> next_frame(std::size_t capacity = ~std::size_t{0});
  void written();           // the oldest frame that is out has been written entirely
  bool has_posted() const;  // operations that have not completed
  bool has_output() const;  // next_frame() has one to give if there is room, or one is out

  // ---- incoming, frame by frame.
  // What the peer did wrong (then call fail()), or where this header's payload goes. `description`: the bytes that it
  // announced, whose checksum was right; not needed afterwards.
  Result<PayloadDestination> header_arrived(const FrameHeader& header,
                                            std::span<const std::byte> description = {});
  // The payload of the last header is in its destination and its checksum was right. A frame without payload is done
  // when header_arrived() returns; calling this all the same does no harm.
  Status payload_arrived();
  // For frame I/O that sees the peer's memory: a payload that need not be stored first. Instead of
  // payload_arrived().
  Status payload_arrived_at(std::span<const std::byte> where_it_is);

  bool peer_sent_goodbye() const;
  bool sends_goodbye() const;  // send_goodbye() was called
  // Queues GOODBYE behind every send posted so far; later posts complete with kAborted. The peer's goodbye completes our
  // posted receives and the sends that wait for its CLEAR with kPeerExited; eager sends still go out.
  void send_goodbye();
  // The connection is gone: completes everything posted, and everything posted later, with `why`. Only messages that
  // had arrived whole before an orderly goodbye can still be received. Calls after the first change nothing.
  void fail(const Status& why);

  // For warnings and errors: what this link still waits for, and what it remembers.
  struct Counts {
    std::size_t posted_sends, posted_recvs, unexpected, requests;
    std::size_t unexpected_nbytes;
    std::size_t clears;     // that came before their send
    std::size_t withdrawn;  // operations of ours whose end the peer has not confirmed
    std::size_t unanswered, early_clears;
    uint64_t credit;               // eager bytes that we may send
    uint64_t charged, returnable;  // eager bytes that the peer has sent; the part that has left our memory
  };
  Counts counts() const;

 private:
  std::unique_ptr<LinkState> state_;
};

}  // namespace pc
