#include "wire/control_message.h"

#include <algorithm>
#include <utility>

#include "wire/crc32c.h"
#include "wire/little_endian.h"

namespace pc {
namespace {

constexpr std::size_t kLengthBytes = sizeof(uint16_t);  // before each text

bool is_about_a_call(FrameType type) { return type == FrameType::kNotice || type == FrameType::kCancel; }

// The texts of a message in wire order. Each gets an equal share of the space that is left, and
// later texts get what earlier ones do not use, so only long texts are cut. A template, because the
// message is const when it is written and not const when it is read.
template <class Message>
auto texts_of(Message& m) {
  std::vector<decltype(&m.end.text)> texts;
  if (is_about_a_call(m.type)) texts = {&m.report.site, &m.report.where, &m.report.last_call};
  if (m.type == FrameType::kCancel || m.type == FrameType::kDead) texts.push_back(&m.end.text);
  if (is_about_a_call(m.type)) texts.push_back(&m.report.call);
  return texts;
}

// Returns at most `capacity` bytes, without a partial UTF-8 character.
std::string_view cut(std::string_view text, std::size_t capacity) {
  if (text.size() <= capacity) return text;
  while (capacity > 0 && (static_cast<unsigned char>(text[capacity]) & 0xc0) == 0x80) --capacity;
  return text.substr(0, capacity);
}

void append_payload(const ControlMessage& m, std::vector<std::byte>& out) {
  const auto append = [&](auto number) { put(&*out.insert(out.end(), sizeof number, std::byte{0}), number); };
  std::size_t capacity = kMaxControlPayload;
  if (is_about_a_call(m.type)) {
    append(m.report.last_done);
    capacity -= sizeof m.report.last_done;
  }
  const auto texts = texts_of(m);
  capacity -= kLengthBytes * texts.size();
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::string_view text = cut(*texts[i], capacity / (texts.size() - i));
    append(static_cast<uint16_t>(text.size()));
    const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
    out.insert(out.end(), bytes.begin(), bytes.end());
    capacity -= text.size();
  }
}

FrameHeader header_of(const ControlMessage& m, std::size_t payload_nbytes) {
  FrameHeader h;
  h.type = m.type;
  h.epoch = m.epoch;
  h.id.stream.klass = StreamClass::kControl;
  if (is_about_a_call(m.type)) {
    h.id.stream.group = m.call.group;
    h.id.stream.tag = static_cast<uint32_t>(m.report.state);
    h.id.sequence = m.call.sequence;
    h.id.digest = m.report.digest;
    if (m.report.where_follows) h.flags |= kFlagWhereFollows;
  }
  if (m.type == FrameType::kCancel) h.id.stream.tag |= static_cast<uint32_t>(m.end.code) << 8;
  if (m.type == FrameType::kCancel || m.type == FrameType::kDead)
    h.id.index = static_cast<uint32_t>(m.end.by);
  if (m.type == FrameType::kNotice && m.asks_where) h.flags |= kFlagAsksWhere;
  if ((m.type == FrameType::kNotice || m.type == FrameType::kPing) && m.asks) h.flags |= kFlagAsks;
  h.message_nbytes = payload_nbytes;
  h.segment_nbytes = static_cast<uint32_t>(payload_nbytes);
  return h;
}

ControlMessage message_of(const FrameHeader& h) {
  ControlMessage m;
  m.type = h.type;
  m.epoch = h.epoch;
  m.call = {h.id.stream.group, h.id.sequence};
  m.asks = (h.flags & kFlagAsks) != 0;
  m.asks_where = (h.flags & kFlagAsksWhere) != 0;
  m.end.code = static_cast<Code>((h.id.stream.tag >> 8) & 0xff);
  m.end.by = static_cast<Rank>(h.id.index);
  m.report.state = static_cast<CallReport::State>(h.id.stream.tag & 0xff);
  m.report.digest = h.id.digest;
  m.report.where_follows = (h.flags & kFlagWhereFollows) != 0;
  return m;
}

Status malformed(const std::string& what) {
  return Status(Code::kPeerFailure, "control connection: " + what);
}

Status check_header(const FrameHeader& h) {
  const ControlMessage m = message_of(h);
  const bool known = is_about_a_call(h.type) || h.type == FrameType::kDead || h.type == FrameType::kPing ||
                     h.type == FrameType::kGoodbye;
  if (!known)
    return malformed("a frame of type " + std::to_string(static_cast<int>(h.type)) +
                     " does not belong there");
  if (h.segment_nbytes > kMaxControlPayload)
    return malformed("payload of " + std::to_string(h.segment_nbytes) + " bytes is too long");
  if (is_about_a_call(h.type) && m.report.state > CallReport::State::kLeaving)
    return malformed("unknown state of a call");
  if (h.type == FrameType::kCancel && (m.end.code == Code::kOk || m.end.code > Code::kInternal))
    return malformed("a call ends for an unknown reason");
  // Encodes the message again. A different header has an unused field that is not zero, so it is
  // damaged or not ours.
  HeaderBytes ours, theirs;
  encode(header_of(m, h.segment_nbytes), ours);
  encode(h, theirs);
  return ours == theirs ? Status::ok() : malformed("a field that this type does not use is not zero");
}

Status read_payload(std::span<const std::byte> payload, ControlMessage& m) {
  if (is_about_a_call(m.type)) {
    if (payload.size() < sizeof m.report.last_done) return malformed("payload is too short");
    m.report.last_done = get<uint64_t>(payload.data());
    payload = payload.subspan(sizeof m.report.last_done);
  }
  for (std::string* text : texts_of(m)) {
    if (payload.size() < kLengthBytes) return malformed("payload is too short");
    const std::size_t length = get<uint16_t>(payload.data());
    payload = payload.subspan(kLengthBytes);
    if (payload.size() < length) return malformed("a text is longer than its payload");
    text->assign(reinterpret_cast<const char*>(payload.data()), length);
    payload = payload.subspan(length);
  }
  return payload.empty() ? Status::ok() : malformed("payload is too long");
}

// Returns how many bytes the first message took, or 0 if it has not arrived completely.
Result<std::size_t> read_one(std::span<const std::byte> bytes, std::vector<ControlMessage>& ready) {
  if (bytes.size() < kHeaderBytes) return std::size_t{0};
  PC_ASSIGN_OR_RETURN(const FrameHeader header, decode(bytes.first<kHeaderBytes>()));
  PC_TRY(check_header(header));
  const std::size_t nbytes = header.segment_nbytes;
  const std::size_t whole = kHeaderBytes + nbytes + (nbytes > 0 ? kTrailerBytes : 0);
  if (bytes.size() < whole) return std::size_t{0};
  const std::span<const std::byte> payload = bytes.subspan(kHeaderBytes, nbytes);
  if (nbytes > 0 && get<uint32_t>(payload.data() + nbytes) != crc32c(payload))
    return malformed("payload checksum is wrong");
  ControlMessage message = message_of(header);
  PC_TRY(read_payload(payload, message));
  ready.push_back(std::move(message));
  return whole;
}

}  // namespace

void encode(const ControlMessage& message, std::vector<std::byte>& out) {
  const std::size_t start = out.size();
  out.resize(start + kHeaderBytes);
  append_payload(message, out);
  const std::size_t nbytes = out.size() - start - kHeaderBytes;
  HeaderBytes header;
  encode(header_of(message, nbytes), header);
  std::copy(header.begin(), header.end(), out.begin() + static_cast<std::ptrdiff_t>(start));
  if (nbytes == 0) return;
  const uint32_t crc = crc32c({out.data() + start + kHeaderBytes, nbytes});
  out.resize(out.size() + kTrailerBytes);
  put(&out[out.size() - kTrailerBytes], crc);
}

Status ControlReader::feed(std::span<const std::byte> bytes) {
  if (!failed_.is_ok()) return failed_;
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  std::size_t at = 0;
  for (std::size_t taken = 1; taken > 0; at += taken) {
    const Result<std::size_t> one = read_one(std::span<const std::byte>(buffer_).subspan(at), ready_);
    if (!one.is_ok()) {
      buffer_.clear();
      return failed_ = one.status();
    }
    taken = one.value();
  }
  buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(at));
  return Status::ok();
}

std::optional<ControlMessage> ControlReader::next() {
  if (taken_ == ready_.size()) return std::nullopt;
  ControlMessage message = std::move(ready_[taken_++]);
  if (taken_ == ready_.size()) {
    ready_.clear();
    taken_ = 0;
  }
  return message;
}

}  // namespace pc
