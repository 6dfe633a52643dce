// State that the sender and the receiver of a Link share: the two ranks, the control frames to
// write, and the watermarks of what has ended here. Private to link*.cc.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "wire/closed_groups.h"
#include "wire/frame_io.h"
#include "wire/node_list.h"

namespace pc {

// same_place() compares stream, sequence and index, which identify a message. foreign() compares
// digest and size, which differ for a message of another call.
inline bool same_place(const MessageId& a, const MessageId& b) {
  return a.sequence == b.sequence && a.index == b.index && a.stream == b.stream;
}
inline bool foreign(const MessageId& ours, uint64_t our_nbytes, const MessageId& theirs,
                    uint64_t their_nbytes) {
  return ours.digest != theirs.digest || our_nbytes != their_nbytes;
}
// Predicates for NodeList::find(): names() for announcements and buffered messages, posted_as() for
// operations.
inline auto names(const MessageId& id) {
  return [&id](const auto& item) { return same_place(item.id, id); };
}
inline auto posted_as(const MessageId& id) {
  return [&id](const auto& item) { return same_place(item.op.id, id); };
}
inline bool is_point_to_point(const MessageId& id) { return id.stream.klass == StreamClass::kPointToPoint; }
// Returns for example "collective 12 of group 0 (lane 1, message 0)" or "message 7 of tag 3 in
// group 0".
std::string describe(const MessageId& id);
Code code_for(const FrameHeader& cancel);  // the code with which the operation here ends

template <class Op>
void complete(const Op& op, Status status, const MessageId& found, uint64_t nbytes = 0) {
  complete(op.completions, op.token, std::move(status), found, nbytes);
}

// A REQUEST for which no receive is posted, a CLEAR for which no send is posted, or an operation
// that this rank withdrew. For a withdrawn operation the peer may send frames until its answer
// shows that no more follow.
struct Announcement {
  Announcement *previous = nullptr, *next = nullptr;
  MessageId id;
  uint64_t nbytes = 0;
  std::string description;  // description in a REQUEST
  // If the peer gave the operation up, the code with which the operation here will end; else kOk.
  Code given_up = Code::kOk;
  bool counted = false;  // for a withdrawn operation: counted in `unanswered` or `early_clears`
};

struct LinkContext {
  struct Watermark {  // the group's collectives up to `through` have ended here
    uint32_t group;
    uint64_t through;
  };

  LinkContext(Rank me_, Rank peer_, uint32_t epoch_, const LinkLimits& limits_, FrameIo* frame_io_)
      : me(me_),
        peer(peer_),
        epoch(epoch_),
        limits(limits_),
        frame_io(frame_io_) {}

  Status about(Code code, std::string message) const {
    return Status(code, std::move(message)).with_rank(me).with_peer(peer);
  }
  Status mismatch(const MessageId& ours, uint64_t our_nbytes, const MessageId& theirs,
                  uint64_t their_nbytes) const;
  Status violation(const FrameHeader& header, const std::string& what) const;
  Status given_up(const MessageId& id, Code code, bool by_receiver) const;
  Status why_ended(const MessageId& id) const;  // returns OK if an operation with this id may be posted

  void push(Fifo<FrameHeader>& queue, FrameType type, uint8_t flags, const MessageId& id, uint64_t nbytes,
            uint64_t offset);
  void push_control(FrameType type, const MessageId& id, uint64_t nbytes, uint8_t flags = 0) {
    push(control, type, flags, id, nbytes, 0);
  }
  bool drop_queued(FrameType type, const MessageId& id) {
    return control.remove([&](const FrameHeader& h) { return h.type == type && same_place(h.id, id); });
  }
  void answer_cancel(const MessageId& id, uint8_t direction) {
    push(answers, FrameType::kCancel, direction | kFlagAnswer, id, 0, 0);
  }
  Status answer(const FrameHeader& header, FrameType type, uint8_t flags);

  Announcement* remember(NodeList<Announcement>& list, const MessageId& id, uint64_t nbytes);
  Announcement take_out(NodeList<Announcement>& list, Announcement* item) {
    Announcement found = std::move(*item);
    list.remove(item);
    announcement_pool.give_back(item);
    return found;
  }
  // Records that the peer gave the operation up. An operation with the same id ends with the code
  // of `cancel` when it is posted here.
  Status mark(Announcement& announced, const FrameHeader& cancel) const;

  void raise_watermark(uint32_t group, uint64_t sequence);
  void close_group(uint32_t group) {
    std::erase_if(watermarks, [&](const Watermark& watermark) { return watermark.group == group; });
    closed_groups.add(group);
  }
  bool below_watermark(const MessageId& id) const;
  // Removes the items below a watermark. Answers each with a frame of `type`, or with a CANCEL of
  // `direction` if the peer has given it up.
  void drop_below_watermark(NodeList<Announcement>& list, FrameType type, uint8_t flags, uint8_t direction);

  const Rank me, peer;
  const uint32_t epoch;
  const LinkLimits limits;
  FrameIo* const frame_io;

  Fifo<FrameHeader> control;
  // Answers about operations that were given up. Sent after `control`, as the last frames about
  // their messages.
  Fifo<FrameHeader> answers;
  NodePool<Announcement> announcement_pool;
  std::vector<Watermark> watermarks;  // at most one per open group
  ClosedGroups closed_groups;
  bool goodbye_wanted = false, goodbye_sent = false, goodbye_received = false;
  Status failed;
};

// Removes the operations of `sink` from a list. Returns false if the peer knows of one of them:
// `take_back` returns false for such an operation.
template <class Node, class TakeBack>
bool withdraw(NodeList<Node>& list, NodePool<Node>& pool, const CompletionSink* sink, LinkContext& link,
              const TakeBack& take_back) {
  bool unannounced = true;
  for (Node *item = list.front(), *next = item; item != nullptr; item = next) {
    next = item->next;
    if (item->op.completions != sink) continue;
    if (!take_back(*item)) {
      const MessageId& id = item->op.id;
      unannounced = false;
      if (!is_point_to_point(id)) link.raise_watermark(id.stream.group, id.sequence);
    }
    list.remove(item);
    pool.give_back(item);
  }
  return unannounced;
}

}  // namespace pc
