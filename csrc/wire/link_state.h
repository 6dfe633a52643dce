// The inside of Link, private to link*.cc.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "wire/closed_groups.h"
#include "wire/link_limits.h"
#include "wire/message.h"
#include "wire/mover.h"
#include "wire/node_list.h"

namespace pc {

// A message is named by its place; digest and size must then agree.
inline bool same_place(const MessageId& a, const MessageId& b) {
  return a.sequence == b.sequence && a.index == b.index && a.stream == b.stream;
}

struct LinkState {
  struct Send {
    Send *previous = nullptr, *next = nullptr;
    SendOp op;
    uint64_t given = 0;      // bytes of the payload in frames that next_frame() gave out
    uint32_t out = 0;        // of those frames, not yet written
    bool eager = false;      // goes on credit
    bool announced = false;  // REQUEST queued or written
    bool cleared = false;    // the peer's CLEAR has come
    uint64_t nbytes() const { return op.message_nbytes != 0 ? op.message_nbytes : part_nbytes(); }
    uint64_t part_nbytes() const { return op.payload.size(); }
    uint64_t cost() const { return kHeaderBytes + op.description.size() + op.payload.size(); }
  };
  struct Recv {
    Recv *previous = nullptr, *next = nullptr;
    RecvOp op;
    uint64_t received = 0;    // of the part
    bool cleared = false;     // CLEAR queued or written
    bool early = false;       // ... before the peer asked; counted in early_clears until this receive ends
    std::string description;  // of the REQUEST, in case this receive is taken back
    bool announced = false;   // REQUEST has come
    bool started = false;     // DATA has come
    uint64_t part_nbytes() const { return op.part_nbytes != 0 ? op.part_nbytes : op.nbytes; }
  };
  struct Unexpected {  // an eager message in our memory
    Unexpected *previous = nullptr, *next = nullptr;
    MessageId id;
    std::size_t nbytes = 0;
    std::string description;
    std::array<std::byte, 64> small;
    std::unique_ptr<std::byte[]> large;
    std::span<std::byte> bytes() { return {large ? large.get() : small.data(), nbytes}; }
    uint64_t cost() const { return kHeaderBytes + description.size() + nbytes; }
  };
  struct Probe {
    Probe *previous = nullptr, *next = nullptr;
    ProbeOp op;
  };
  struct
      Announcement {  // a REQUEST without a receive, or a CLEAR without a send; or an operation that we withdrew
    Announcement *previous = nullptr, *next = nullptr;
    MessageId id;
    uint64_t nbytes = 0;
    std::string description;    // of a REQUEST
    Code given_up = Code::kOk;  // by the peer meanwhile: what our operation will end with
    bool counted = false;       // withdrawn: in `unanswered` or `early_clears`
  };
  struct Fence {  // the group's collectives up to `through` have ended here
    uint32_t group;
    uint64_t through;
  };
  // Where the payload of the last header goes.
  struct Incoming {
    enum class Kind : uint8_t { kNothing, kReceive, kEagerReceive, kUnexpected, kSwallow, kEagerSwallow };
    Kind kind = Kind::kNothing;
    Recv* recv = nullptr;
    Unexpected* unexpected = nullptr;
    FrameHeader header;
    std::span<std::byte> where;
  };

  LinkState(Rank me, Rank peer, uint32_t epoch, const LinkLimits& limits, Mover* mover);

  // link.cc: posting and outgoing
  void post_send(const SendOp& op);
  void post_recv(const RecvOp& op);
  void post_probe(const ProbeOp& op);
  std::optional<OutFrame> next_frame(std::size_t room);
  void written();
  std::size_t next_segment(const Send& send, std::size_t room) const;
  Gather give_segment(Send& send, std::size_t count, FrameHeader& header);
  std::span<const std::byte> description_of_request(const FrameHeader& header) const;
  bool goodbye_is_next() const {
    return goodbye_wanted && !goodbye_sent && control.empty() && answers.empty() && active.empty() &&
           waiting.empty();
  }
  bool send_at_once(const MessageId& id, uint64_t nbytes, uint64_t cost);
  bool can_receive_at_once(const FrameHeader& header, const MessageId& id, uint64_t nbytes) const;
  Status why_ended(const MessageId& id) const;  // OK: an operation of this name may be posted
  void announce_waiting();                      // REQUESTs that max_requests has held back
  void push_control(FrameType type, const MessageId& id, uint64_t nbytes, uint8_t flags = 0) {
    push(control, type, flags, id, nbytes, 0);
  }
  void push(Fifo<FrameHeader>& queue, FrameType type, uint8_t flags, const MessageId& id, uint64_t nbytes,
            uint64_t offset);
  void push_credit();
  void report_strays(const RecvOp& op);
  void clear_early(Recv& recv);
  void withdraw_clear(const Recv& recv);
  void forget_early(Recv& recv);
  void finish(Send* send, NodeList<Send>& from, Status status, const MessageId& found, uint64_t nbytes);
  void finish(Recv* recv, Status status, const MessageId& found, uint64_t nbytes);
  bool foreign(const MessageId& ours, uint64_t our_nbytes, const MessageId& theirs,
               uint64_t their_nbytes) const {
    return ours.digest != theirs.digest || our_nbytes != their_nbytes;
  }
  Status mismatch(const MessageId& ours, uint64_t our_nbytes, const MessageId& theirs,
                  uint64_t their_nbytes) const;
  Status about(Code code, std::string message) const;
  static uint64_t cost(const FrameHeader& eager) {
    return kHeaderBytes + eager.description_nbytes + eager.message_nbytes;
  }
  void consumed(uint64_t cost);  // an eager message has left our memory
  void deliver(const RecvOp& op, Unexpected* message);
  void tell_probes(const MessageId& id, uint64_t nbytes, const std::string& description);
  void release(Unexpected* message);

  // link_cancel.cc
  bool cancel(const CompletionSink* sink, const Status& why);
  bool take_back(Send& send, const Status& why);  // true: the peer was not told of it
  bool take_back(Recv& recv, const Status& why);
  bool drop_queued(FrameType type, const MessageId& id);
  void detach(Send& send);  // its memory is not needed any more, whatever is out of it
  void swallow_incoming();
  void discard(uint32_t group, uint64_t sequence);
  void close_group(uint32_t group);
  void raise_fence(uint32_t group, uint64_t sequence);
  void drop_fenced();
  bool fenced(const MessageId& id) const;
  Status cancel_arrived(const FrameHeader& header);
  Status sender_gave_up(const FrameHeader& header);
  Status receiver_gave_up(const FrameHeader& header);
  Status given_up(const MessageId& id, Code code, bool by_receiver) const;
  void answer_cancel(const MessageId& id, uint8_t direction);
  Status answer(const FrameHeader& header, FrameType type, uint8_t flags);
  Announcement* remember(NodeList<Announcement>& list, const MessageId& id, uint64_t nbytes);
  void forget(NodeList<Announcement>& list, Announcement* item);
  void settle_send(Announcement* withdrawn);  // the peer has nothing more to say about it
  void settle_recv(Announcement* withdrawn);
  bool unwanted(const FrameHeader& header);  // DATA of what was given up here

  // link_end.cc
  void fail(const Status& why);
  void complete_all(NodeList<Send>& list, const Status& why);
  void complete_recvs(const Status& why);
  void complete_probes(const Status& why);

  // link_incoming.cc
  Result<PayloadDestination> header_arrived(const FrameHeader& header,
                                            std::span<const std::byte> description);
  Status request_arrived(const FrameHeader& header, std::span<const std::byte> description);
  void keep_request(const MessageId& id, uint64_t nbytes, std::string description);
  Status clear_arrived(const FrameHeader& header);
  Status credit_arrived(const FrameHeader& header);
  void goodbye_arrived();
  Status data_arrived(const FrameHeader& header, std::span<const std::byte> description);
  Status eager_arrived(const FrameHeader& header, std::span<const std::byte> description);
  Status segment_arrived(const FrameHeader& header);
  Status payload_arrived(std::span<const std::byte> at);
  void store_unexpected(Unexpected* message);
  std::span<std::byte> staging(std::size_t nbytes);
  Status violation(const FrameHeader& header, const std::string& what) const;

  const Rank me, peer;
  const uint32_t epoch;
  const LinkLimits limits;
  Mover* const mover;

  NodePool<Send> send_pool;
  NodePool<Recv> recv_pool;
  NodePool<Unexpected> unexpected_pool;
  NodePool<Announcement> announcement_pool;
  NodePool<Probe> probe_pool;

  // Sending. A send is in exactly one of the three lists.
  NodeList<Send> active;          // its DATA may go; the front has the next turn
  NodeList<Send> leaving;         // all of it is given out, not all is written
  NodeList<Send> waiting;         // for the peer's CLEAR
  NodeList<Announcement> clears;  // CLEARs that came before their send was posted
  NodeList<Announcement> withdrawn_sends;
  Fifo<FrameHeader> control;
  Fifo<FrameHeader> answers;  // about what was given up; behind `control`: the last word on their message
  uint64_t credit;            // eager bytes that we may send
  uint32_t unanswered = 0;    // REQUESTs without CLEAR
  std::size_t held_back = 0;  // in `waiting`, not announced
  Fifo<Send*> frames_out;  // given, not yet written, oldest first; null: of no send, or of one that is gone

  // Receiving.
  NodeList<Recv> recvs;
  NodeList<Probe> probes;  // for what has not come
  NodeList<Unexpected> unexpected;
  NodeList<Announcement> requests;  // REQUESTs that came before their receive was posted
  NodeList<Announcement> withdrawn_recvs;
  std::vector<Fence> fences;  // one per open group at most
  ClosedGroups closed_groups;
  uint64_t charged = 0;     // eager bytes that the peer has sent and not got back as credit
  uint64_t returnable = 0;  // the part of `charged` that has left our memory
  uint64_t unexpected_nbytes = 0;
  uint32_t early_clears = 0;  // receives cleared early, withdrawn or not: CLEARs that the peer may hold
  Incoming incoming;
  std::unique_ptr<std::byte[]> staging_memory;

  bool goodbye_wanted = false, goodbye_sent = false, goodbye_received = false;
  Status failed;
};

std::string describe(
    const MessageId& id);  // "collective 12.0 of group 0 lane 1", "message 7 of group 0 tag 3"

}  // namespace pc
