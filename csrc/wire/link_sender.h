// The sending half of a Link: its posted sends, and the frames to write. Private to link*.cc.
#pragma once

#include <cstdint>
#include <optional>

#include "wire/link_context.h"

namespace pc {

struct LinkSender {
  struct Send {
    Send *previous = nullptr, *next = nullptr;
    SendOp op;
    uint64_t given = 0;      // bytes of the payload in frames that next_frame() returned
    uint32_t out = 0;        // number of those frames that are not yet written
    bool eager = false;      // sent on credit
    bool announced = false;  // REQUEST was queued or written
    bool cleared = false;    // the peer's CLEAR has arrived
    uint64_t nbytes() const { return op.message_nbytes != 0 ? op.message_nbytes : part_nbytes(); }
    uint64_t part_nbytes() const { return op.payload.size(); }
    uint64_t cost() const { return kHeaderBytes + op.description.size() + op.payload.size(); }
  };

  explicit LinkSender(LinkContext& context) : link(context), credit(context.limits.credit_bytes) {}

  void post_send(const SendOp& op);
  bool send_at_once(const MessageId& id, uint64_t nbytes, uint64_t cost);
  void announce_waiting();  // queues the REQUESTs that max_requests has held back
  void finish(Send* send, NodeList<Send>& from, Status status, const MessageId& found, uint64_t nbytes);

  std::optional<OutFrame> next_frame(std::size_t capacity);
  ConstIoVec give_segment(Send& send, std::size_t count, FrameHeader& header);
  std::span<const std::byte> description_of_request(const FrameHeader& header) const;
  bool has_frame() const {  // a control frame, a segment, or at the end GOODBYE
    return !link.control.empty() || !link.answers.empty() || !active.empty() ||
           (link.goodbye_wanted && !link.goodbye_sent && waiting.empty());
  }
  void written();

  Status clear_arrived(const FrameHeader& header);
  Status credit_arrived(const FrameHeader& header);

  void fail(const Status& why);
  void complete_all(NodeList<Send>& list, const Status& why) {
    while (!list.empty()) finish(list.front(), list, why, list.front()->op.id, 0);
  }
  void complete_waiting(const Status& why) {
    unanswered = 0;
    held_back = 0;
    complete_all(waiting, why);
  }

  bool cancel(const CompletionSink* sink, const Status& why);
  bool take_back(Send& send, const Status& why);  // returns true if the peer does not know of the send
  Status receiver_gave_up(const FrameHeader& header);
  void detach(Send& send) {  // after this, the memory of the send may be reused even if its frames are out
    if (send.out == 0) return;
    if (link.frame_io != nullptr) link.frame_io->keep_unsent();
    frames_out.replace(&send, nullptr);
  }
  // Removes a withdrawn send, because the peer sends no more frames for it. Returns false if
  // `withdrawn` is null.
  bool settle(Announcement* withdrawn) {
    if (withdrawn == nullptr) return false;
    if (link.take_out(withdrawn_sends, withdrawn).counted) --unanswered;
    announce_waiting();
    return true;
  }

  LinkContext& link;
  NodePool<Send> send_pool;
  // A send is in exactly one of the three lists.
  NodeList<Send> active;          // its DATA may be sent; the front is next
  NodeList<Send> leaving;         // next_frame() has returned all of it, but not all is written
  NodeList<Send> waiting;         // for the peer's CLEAR
  NodeList<Announcement> clears;  // CLEARs that arrived before their send was posted
  NodeList<Announcement> withdrawn_sends;
  uint64_t credit;            // eager bytes that this rank may send
  uint32_t unanswered = 0;    // REQUESTs without CLEAR
  std::size_t held_back = 0;  // sends in `waiting` that are not announced
  // The sends of the frames that are out, oldest first. Null for a frame that belongs to no send,
  // or to a send that no longer exists.
  Fifo<Send*> frames_out;
};

}  // namespace pc
