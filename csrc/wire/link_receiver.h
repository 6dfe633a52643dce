// The receiving half of a Link: its posted receives and probes, the messages that arrived before
// them, and the payload that is arriving. Private to link*.cc.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "wire/link_context.h"

namespace pc {

struct LinkReceiver {
  struct Recv {
    Recv *previous = nullptr, *next = nullptr;
    RecvOp op;
    uint64_t received = 0;  // bytes of the part that have arrived
    bool cleared = false;   // CLEAR was queued or written
    bool early = false;  // CLEAR before the peer's REQUEST; counted in early_clears until this receive ends
    std::string description;  // description in the REQUEST, kept in case this receive is withdrawn
    bool announced = false;   // REQUEST has arrived
    bool started = false;     // DATA has arrived
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
  // The destination of the last header's payload.
  struct Incoming {
    enum class Kind : uint8_t { kNothing, kReceive, kEagerReceive, kUnexpected, kDrain, kEagerDrain };
    Kind kind = Kind::kNothing;
    Recv* recv = nullptr;
    Unexpected* unexpected = nullptr;
    FrameHeader header;
    std::span<std::byte> where;
  };

  LinkReceiver(LinkContext& context, NodeList<Announcement>& clears_of_sender)
      : link(context),
        clears(clears_of_sender) {}

  void post_recv(const RecvOp& op);
  void report_late_mismatches(const RecvOp& op);
  void clear_early(Recv& recv);
  void forget_early(Recv& recv) { early_clears -= std::exchange(recv.early, false) ? 1 : 0; }
  RecvOp take_out(Recv* recv) {
    const RecvOp op = recv->op;
    forget_early(*recv);
    recvs.remove(recv);
    recv_pool.give_back(recv);
    return op;
  }
  void finish(Recv* recv, Status status, const MessageId& found, uint64_t nbytes) {
    complete(take_out(recv), std::move(status), found, nbytes);
  }
  void deliver(const RecvOp& op, Unexpected* message);
  Unexpected* take_out(Unexpected* message) {
    unexpected.remove(message);
    unexpected_nbytes -= message->nbytes;
    return message;
  }
  void release(Unexpected* message) {
    message->large.reset();
    message->description = std::string();
    unexpected_pool.give_back(message);
  }
  void consumed(uint64_t cost);  // an eager message has left our memory
  static uint64_t cost(const FrameHeader& eager) {
    return kHeaderBytes + eager.description_nbytes + eager.message_nbytes;
  }

  void post_probe(const ProbeOp& op);
  ProbeOp take_out(Probe* probe) {
    const ProbeOp op = probe->op;
    probes.remove(probe);
    probe_pool.give_back(probe);
    return op;
  }
  void notify_probes(const MessageId& id, uint64_t nbytes, const std::string& description);

  bool can_receive_at_once(const FrameHeader& header, const MessageId& id, uint64_t nbytes) const;
  Status request_arrived(const FrameHeader& header, std::span<const std::byte> description);
  void keep_request(const MessageId& id, uint64_t nbytes, std::string description);
  Status eager_arrived(const FrameHeader& header, std::span<const std::byte> description);
  Status segment_arrived(const FrameHeader& header);
  Status drain(Incoming::Kind kind, std::size_t nbytes) {
    incoming.kind = kind;
    incoming.where = staging(nbytes);
    return Status::ok();
  }
  std::span<std::byte> staging(std::size_t nbytes);
  Status payload_arrived(std::span<const std::byte> at);
  void store_unexpected(Unexpected* message);

  void fail(const Status& why);
  void complete_posted(const Status& why);

  bool cancel(const CompletionSink* sink, const Status& why);
  bool take_back(Recv& recv, const Status& why);
  void drain_incoming();
  bool settle(Announcement* withdrawn) {
    if (withdrawn == nullptr) return false;
    if (link.take_out(withdrawn_recvs, withdrawn).counted) --early_clears;
    return true;
  }
  void drop_below_watermark();
  Status sender_gave_up(const FrameHeader& header);
  bool unwanted(const FrameHeader& header);  // returns true for DATA of an operation that was given up here

  LinkContext& link;
  // owned by the LinkSender; needed here because a watermark drops CLEARs, too
  NodeList<Announcement>& clears;
  NodePool<Recv> recv_pool;
  NodePool<Unexpected> unexpected_pool;
  NodePool<Probe> probe_pool;
  NodeList<Recv> recvs;
  NodeList<Probe> probes;  // for messages that have not arrived
  NodeList<Unexpected> unexpected;
  NodeList<Announcement> requests;  // REQUESTs that arrived before their receive was posted
  NodeList<Announcement> withdrawn_recvs;
  uint64_t charged = 0;     // eager bytes that the peer has sent and that were not returned as credit
  uint64_t returnable = 0;  // the part of `charged` that has left our memory
  uint64_t unexpected_nbytes = 0;
  uint32_t early_clears = 0;  // early CLEARs that the peer may store, including those of withdrawn receives
  Incoming incoming;
  std::unique_ptr<std::byte[]> staging_memory;
};

}  // namespace pc
