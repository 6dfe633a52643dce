#include "wire/frame.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <string>

#include "wire/crc32c.h"
#include "wire/little_endian.h"

namespace pc {
namespace {

Status broken(const char* what, uint64_t got, uint64_t expected) {
  char text[160];
  std::snprintf(text, sizeof text, "%s (got 0x%" PRIx64 ", expected 0x%" PRIx64 ")", what, got, expected);
  return Status(Code::kPeerFailure, text);
}

Status check_start(const std::byte* bytes) {
  if (get<uint32_t>(bytes) != kFrameMagic)
    return broken("not a frame: wrong magic", get<uint32_t>(bytes), kFrameMagic);
  if (const uint8_t version = get<uint8_t>(bytes + 4); version != kProtocolVersion) {
    return Status(Code::kPeerFailure, "the peer speaks protocol version " + std::to_string(version) +
                                          ", this process version " + std::to_string(kProtocolVersion) +
                                          ": install the same pycollective release on every host");
  }
  const uint32_t stored = get<uint32_t>(bytes + 60);
  const uint32_t computed = crc32c({bytes, 60});
  if (stored != computed)
    return broken("header checksum is wrong: damaged on the way, or not written by us", stored, computed);
  return Status::ok();
}

uint8_t allowed_flags(FrameType type, StreamClass klass) {
  switch (type) {
    case FrameType::kData: return kFlagEager;
    case FrameType::kRequest:
    case FrameType::kClear: return kFlagWithdrawn;
    case FrameType::kNotice: return kFlagAsks | kFlagAsksWhere | kFlagWhereFollows;
    case FrameType::kCancel:
      return klass == StreamClass::kPointToPoint ? kFlagByReceiver | kFlagAnswer : kFlagWhereFollows;
    case FrameType::kPing: return kFlagAsks;
    default: return 0;
  }
}

bool names_no_message(const FrameHeader& h) {
  return h.id.stream == Stream{0, StreamClass::kControl, 0} && h.id.index == 0 && h.id.sequence == 0 &&
         h.id.digest == 0 && h.message_nbytes == 0;
}

Status check_extent(const FrameHeader& h) {
  if (h.segment_nbytes > kMaxSegmentBytes)
    return broken("segment is too long", h.segment_nbytes, kMaxSegmentBytes);
  if (h.offset > h.message_nbytes)
    return broken("segment starts behind its message's end", h.offset, h.message_nbytes);
  const uint64_t rest = h.message_nbytes - h.offset;
  if (h.segment_nbytes > rest) return broken("segment ends behind its message's end", h.segment_nbytes, rest);
  if (h.segment_nbytes == 0 && h.message_nbytes != 0)
    return broken("segment is empty but its message is not", 0, rest);
  if (h.segment_nbytes < rest && h.segment_nbytes % 64 != 0) {
    return broken("segment that is not the last has a length that is no multiple of 64", h.segment_nbytes,
                  rest);
  }
  if ((h.flags & kFlagEager) != 0 && h.segment_nbytes != h.message_nbytes) {
    return broken("eager message is not whole", h.segment_nbytes, h.message_nbytes);
  }
  return Status::ok();
}

Status check_description(const FrameHeader& h) {
  const bool may_have_one = (h.type == FrameType::kData && (h.flags & kFlagEager) != 0) ||
                            (h.type == FrameType::kRequest && (h.flags & kFlagWithdrawn) == 0);
  const uint64_t most = may_have_one ? kMaxDescriptionBytes : 0;
  return h.description_nbytes <= most ? Status::ok()
                                      : broken("description is too long", h.description_nbytes, most);
}

Status check_control(const FrameHeader& h) {
  if (h.id.stream.klass != StreamClass::kControl)
    return broken("control message has another class", static_cast<uint8_t>(h.id.stream.klass), 0);
  if (h.offset != 0 || h.segment_nbytes != h.message_nbytes)
    return broken("control message is not whole", h.segment_nbytes, h.message_nbytes);
  return Status::ok();
}

Status check_meaning(const FrameHeader& h) {
  switch (h.type) {
    case FrameType::kData: return check_extent(h);
    case FrameType::kNotice:
    case FrameType::kDead:
    case FrameType::kPing: return check_control(h);
    case FrameType::kCancel:
      if (h.id.stream.klass != StreamClass::kPointToPoint) return check_control(h);
      if (h.message_nbytes != 0 || h.segment_nbytes != 0)
        return broken("frame must not carry a payload", h.segment_nbytes, 0);
      return Status::ok();
    case FrameType::kRequest:
    case FrameType::kClear:
      if (h.offset != 0 || h.segment_nbytes != 0)
        return broken("frame must not carry a payload", h.segment_nbytes, 0);
      return Status::ok();
    case FrameType::kCredit:
    case FrameType::kGoodbye:
      if (h.segment_nbytes != 0) return broken("frame must not carry a payload", h.segment_nbytes, 0);
      if (!names_no_message(h)) return broken("frame must not name a message", h.id.sequence, 0);
      if (h.type == FrameType::kGoodbye && h.offset != 0)
        return broken("goodbye must not grant credit", h.offset, 0);
      return Status::ok();
  }
  return broken("unknown frame type", static_cast<uint8_t>(h.type), 1);
}

}  // namespace

void encode(const FrameHeader& header, HeaderBytes& out) {
  std::byte* b = out.data();
  put<uint32_t>(b, kFrameMagic);
  put<uint8_t>(b + 4, kProtocolVersion);
  put<uint8_t>(b + 5, static_cast<uint8_t>(header.type));
  put<uint8_t>(b + 6, static_cast<uint8_t>(header.id.stream.klass));
  put<uint8_t>(b + 7, header.flags);
  put<uint32_t>(b + 8, header.epoch);
  put<uint32_t>(b + 12, header.id.stream.group);
  put<uint32_t>(b + 16, header.id.stream.tag);
  const bool is_message = header.id.stream.klass == StreamClass::kPointToPoint;
  put<uint32_t>(b + 20, is_message ? header.description_nbytes : header.id.index);
  put<uint64_t>(b + 24, header.id.sequence);
  put<uint64_t>(b + 32, header.id.digest);
  put<uint64_t>(b + 40, header.message_nbytes);
  put<uint64_t>(b + 48, header.offset);
  put<uint32_t>(b + 56, header.segment_nbytes);
  put<uint32_t>(b + 60, crc32c({b, 60}));
}

Result<FrameHeader> decode(std::span<const std::byte, kHeaderBytes> bytes) {
  const std::byte* b = bytes.data();
  PC_TRY(check_start(b));
  const StreamClass klass = static_cast<StreamClass>(get<uint8_t>(b + 6));
  FrameHeader h;
  h.type = static_cast<FrameType>(get<uint8_t>(b + 5));
  h.flags = get<uint8_t>(b + 7);
  h.epoch = get<uint32_t>(b + 8);
  h.id.stream = {get<uint32_t>(b + 12), klass, get<uint32_t>(b + 16)};
  (h.id.stream.klass == StreamClass::kPointToPoint ? h.description_nbytes : h.id.index) =
      get<uint32_t>(b + 20);
  h.id.sequence = get<uint64_t>(b + 24);
  h.id.digest = get<uint64_t>(b + 32);
  h.message_nbytes = get<uint64_t>(b + 40);
  h.offset = get<uint64_t>(b + 48);
  h.segment_nbytes = get<uint32_t>(b + 56);
  PC_TRY(check(h));
  return h;
}

Status check(const FrameHeader& h) {
  const uint8_t type = static_cast<uint8_t>(h.type), klass = static_cast<uint8_t>(h.id.stream.klass);
  if (type < static_cast<uint8_t>(FrameType::kData) || type > static_cast<uint8_t>(FrameType::kPing))
    return broken("unknown frame type", type, static_cast<uint8_t>(FrameType::kPing));
  if (klass > static_cast<uint8_t>(StreamClass::kPointToPoint))
    return broken("unknown stream class", klass, static_cast<uint8_t>(StreamClass::kPointToPoint));
  const uint8_t flags = allowed_flags(h.type, h.id.stream.klass);
  if ((h.flags & ~flags) != 0) return broken("unknown flags", h.flags, flags);
  PC_TRY(check_description(h));
  return check_meaning(h);
}

}  // namespace pc
