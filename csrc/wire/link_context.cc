#include "wire/link_context.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

namespace pc {
namespace {

std::string extent(const MessageId& id, uint64_t nbytes) {
  char text[80];
  std::snprintf(text, sizeof text, "%" PRIu64 " bytes (call fingerprint %016" PRIx64 ")", nbytes, id.digest);
  return text;
}

const char* name_of(FrameType type) {
  switch (type) {
    case FrameType::kData: return "DATA";
    case FrameType::kRequest: return "REQUEST";
    case FrameType::kClear: return "CLEAR";
    case FrameType::kCredit: return "CREDIT";
    case FrameType::kGoodbye: return "GOODBYE";
    case FrameType::kNotice: return "NOTICE";
    case FrameType::kDead: return "DEAD";
    case FrameType::kCancel: return "CANCEL";
    case FrameType::kPing: return "PING";
  }
  return "unknown frame";
}

}  // namespace

Code code_for(const FrameHeader& cancel) {
  switch (cancel.offset) {
    case static_cast<uint64_t>(Code::kInterrupted): return Code::kPeerInterrupted;
    case static_cast<uint64_t>(Code::kTimeout): return Code::kTimeout;
    default: return Code::kAborted;
  }
}

std::string describe(const MessageId& id) {
  char text[160];
  if (is_point_to_point(id)) {
    std::snprintf(text, sizeof text, "message %" PRIu64 " of tag %u in group %u", id.sequence, id.stream.tag,
                  id.stream.group);
  } else {
    std::snprintf(text, sizeof text, "%s %" PRIu64 " of group %u (lane %u, message %u)",
                  id.stream.klass == StreamClass::kCollective ? "collective" : "control message", id.sequence,
                  id.stream.group, id.stream.tag, id.index);
  }
  return text;
}

// ---- How operations end.

Status LinkContext::mismatch(const MessageId& ours, uint64_t our_nbytes, const MessageId& theirs,
                             uint64_t their_nbytes) const {
  return about(Code::kMismatch, "rank " + std::to_string(me) + " and rank " + std::to_string(peer) +
                                    " disagree about " + describe(ours) + ": here " +
                                    extent(ours, our_nbytes) + ", there " + extent(theirs, their_nbytes));
}

Status LinkContext::violation(const FrameHeader& header, const std::string& what) const {
  return about(Code::kPeerFailure, "rank " + std::to_string(peer) + " broke the protocol: " +
                                       name_of(header.type) + " for " + describe(header.id) + ": " + what);
}

Status LinkContext::given_up(const MessageId& id, Code code, bool by_receiver) const {
  const char* const reason = code == Code::kPeerInterrupted ? "it was interrupted"
                             : code == Code::kTimeout       ? "its deadline passed"
                                                            : "the call there was ended";
  return about(code, "rank " + std::to_string(peer) + " gave up " +
                         (by_receiver ? "receiving " : "sending ") + describe(id) + ": " + reason);
}

Status LinkContext::why_ended(const MessageId& id) const {
  if (!failed.is_ok()) return failed;
  if (goodbye_wanted) return about(Code::kAborted, "this rank has shut down");
  if (goodbye_received) {
    return about(Code::kPeerExited,
                 "rank " + std::to_string(peer) + " has shut down and takes part in nothing any more");
  }
  if (below_watermark(id)) return about(Code::kAborted, describe(id) + " has ended here");
  return Status::ok();
}

// ---- Control frames.

void LinkContext::push(Fifo<FrameHeader>& queue, FrameType type, uint8_t flags, const MessageId& id,
                       uint64_t nbytes, uint64_t offset) {
  if (goodbye_sent || !failed.is_ok()) return;  // nothing follows a goodbye
  FrameHeader header;
  header.type = type;
  header.flags = flags;
  header.epoch = epoch;
  header.id = id;
  header.message_nbytes = nbytes;
  header.offset = offset;
  queue.push(header);
}

// Answers a frame that concerns no operation of this rank. The peer alone determines how many such
// frames arrive, so the number of answers is limited.
Status LinkContext::answer(const FrameHeader& header, FrameType type, uint8_t flags) {
  if (answers.size() >= std::size_t{4} * limits.max_requests) {
    return violation(header, "it takes none of our " + std::to_string(answers.size()) + " answers");
  }
  push(answers, type, flags, header.id, header.message_nbytes, 0);
  return Status::ok();
}

// ---- What is remembered.

Announcement* LinkContext::remember(NodeList<Announcement>& list, const MessageId& id, uint64_t nbytes) {
  Announcement* const item = announcement_pool.take();
  item->id = id;
  item->nbytes = nbytes;
  list.push_back(item);
  return item;
}

Status LinkContext::mark(Announcement& announced, const FrameHeader& cancel) const {
  if (announced.given_up != Code::kOk) return violation(cancel, "it was cancelled before");
  announced.given_up = code_for(cancel);
  return Status::ok();
}

void LinkContext::raise_watermark(uint32_t group, uint64_t sequence) {
  for (Watermark& watermark : watermarks) {
    if (watermark.group != group) continue;
    watermark.through = std::max(watermark.through, sequence);
    return;
  }
  watermarks.push_back({group, sequence});
}

bool LinkContext::below_watermark(const MessageId& id) const {
  if (closed_groups.contains(id.stream.group)) return true;
  if (watermarks.empty() || id.stream.klass != StreamClass::kCollective) return false;
  return std::any_of(watermarks.begin(), watermarks.end(), [&](const Watermark& watermark) {
    return watermark.group == id.stream.group && id.sequence <= watermark.through;
  });
}

// The peer counts its REQUESTs and early CLEARs until they are answered, so dropped ones are
// answered too: a REQUEST with a CLEAR, a CLEAR with a REQUEST. An operation that the peer has
// given up meanwhile (always a point-to-point message) is answered with a CANCEL.
void LinkContext::drop_below_watermark(NodeList<Announcement>& list, FrameType type, uint8_t flags,
                                       uint8_t direction) {
  while (Announcement* const item =
             list.find([this](const Announcement& a) { return below_watermark(a.id); })) {
    const Announcement dropped = take_out(list, item);
    if (dropped.given_up != Code::kOk)
      answer_cancel(dropped.id, direction);
    else
      push(answers, type, flags, dropped.id, dropped.nbytes, 0);
  }
}

}  // namespace pc
