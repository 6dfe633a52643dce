#include "transport/tcp/frame_reader.h"

#include <sys/uio.h>

#include <algorithm>
#include <cstring>

#include "wire/crc32c.h"
#include "wire/little_endian.h"

namespace pc {
namespace {

// The buffer holds an eager message with header and trailer, so that one call can receive the whole
// message.
constexpr std::size_t kReadBufferBytes = 68UL * 1024;
// How much is received after a payload in the same call: its trailer, the next header, short
// frames.
constexpr std::size_t kLookAhead = 4UL * 1024;
// The limit of payload bytes per call: so few are still in the L2 cache when their checksum is
// computed.
constexpr std::size_t kPayloadBytesPerCall = 128UL * 1024;

std::string hex(uint32_t value) {
  char text[11];
  std::snprintf(text, sizeof text, "%08x", value);
  return text;
}

std::size_t followed_by_trailer(std::size_t nbytes) { return nbytes == 0 ? 0 : nbytes + kTrailerBytes; }

}  // namespace

FrameReader::FrameReader(Rank peer) : peer_(peer), buffer_(new std::byte[kReadBufferBytes]) {}

Result<std::size_t> FrameReader::read(ByteStream& stream, Link& link, std::size_t budget) {
  std::size_t calls = 0;
  bool drained = false;
  for (std::size_t nbytes = 0; (!drained && nbytes < budget) || stream.holds_bytes();) {
    PC_ASSIGN_OR_RETURN(const std::size_t count, fill(stream, drained));
    if (count == 0) break;
    nbytes += count;
    ++calls;
    PC_TRY(parse(link));
  }
  return calls;
}

// Returns the number of bytes read, or 0 if there are none now. Sets `drained` if the socket
// returned fewer bytes than requested, which means that it is empty.
Result<std::size_t> FrameReader::fill(ByteStream& stream, bool& drained) {
  if (begin_ == end_) {
    begin_ = end_ = 0;
  } else if (begin_ > 0) {
    std::memmove(buffer_.get(), buffer_.get() + begin_,
                 buffered());  // less than a header and its description
    end_ -= begin_;
    begin_ = 0;
  }
  const std::size_t rest = payload_.size() - filled_;
  const std::size_t wanted = std::min(rest, kPayloadBytesPerCall);
  const std::size_t behind = rest > wanted ? 0 : wanted > 0 ? kLookAhead : kReadBufferBytes - end_;
  const iovec parts[2] = {{payload_.data() + filled_, wanted}, {buffer_.get() + end_, behind}};
  const std::size_t first = wanted > 0 ? 0 : 1, last = behind > 0 ? 1 : 0;
  PC_ASSIGN_OR_RETURN(const ByteStream::Received received,
                      stream.receive(std::span(parts).subspan(first, last + 1 - first)));
  if (received.end) {
    closed_ = true;
    return Status(Code::kPeerFailure, "connection closed");
  }
  const std::size_t got = received.nbytes;
  if (got == 0) return got;
  const std::size_t into_payload = std::min(got, wanted);
  if (into_payload > 0) {
    crc_ = crc32c(payload_.subspan(filled_, into_payload), crc_);
    filled_ += into_payload;
  }
  end_ += got - into_payload;
  drained = got < wanted + behind;
  return got;
}

Status FrameReader::parse(Link& link) {
  for (;;) {
    switch (at_) {
      case At::kHeader:
        if (buffered() < kHeaderBytes) return Status::ok();
        PC_TRY(read_header());
        break;
      case At::kDescription:
        if (buffered() < followed_by_trailer(header_.description_nbytes)) return Status::ok();
        PC_TRY(begin_frame(link));
        break;
      case At::kPayload: {
        const std::size_t count = std::min(buffered(), payload_.size() - filled_);
        if (count > 0) {
          crc_ = crc32c_copy(payload_.data() + filled_, {buffer_.get() + begin_, count}, crc_);
          filled_ += count;
          begin_ += count;
        }
        if (filled_ < payload_.size()) return Status::ok();
        at_ = At::kTrailer;
        break;
      }
      case At::kTrailer:
        if (buffered() < kTrailerBytes) return Status::ok();
        PC_TRY(check_trailer(link));
        break;
    }
  }
}

Status FrameReader::read_header() {
  PC_ASSIGN_OR_RETURN(header_,
                      decode(std::span<const std::byte, kHeaderBytes>(buffer_.get() + begin_, kHeaderBytes)));
  begin_ += kHeaderBytes;
  at_ = At::kDescription;
  return Status::ok();
}

Status FrameReader::begin_frame(Link& link) {
  const std::span<const std::byte> description(buffer_.get() + begin_, header_.description_nbytes);
  if (!description.empty()) {
    const uint32_t crc = crc32c(description),
                   expected = get<uint32_t>(description.data() + description.size());
    if (crc != expected) return damaged("description", crc, expected);
  }
  PC_ASSIGN_OR_RETURN(const PayloadDestination destination, link.header_arrived(header_, description));
  begin_ += followed_by_trailer(description.size());
  at_ = At::kHeader;
  if (header_.segment_nbytes == 0) return link.payload_arrived();
  payload_ = destination.where;
  filled_ = 0;
  crc_ = 0;
  at_ = At::kPayload;
  return Status::ok();
}

Status FrameReader::check_trailer(Link& link) {
  const uint32_t expected = get<uint32_t>(buffer_.get() + begin_);
  begin_ += kTrailerBytes;
  payload_ = {};
  filled_ = 0;
  at_ = At::kHeader;
  if (crc_ == expected) return link.payload_arrived();
  return damaged("payload, bytes " + std::to_string(header_.offset) + " to " +
                     std::to_string(header_.offset + header_.segment_nbytes) + " of " +
                     std::to_string(header_.message_nbytes) + ",",
                 crc_, expected);
}

Status FrameReader::damaged(const std::string& what, uint32_t crc, uint32_t expected) const {
  return Status(Code::kPeerFailure, "message #" + std::to_string(header_.id.sequence) + " from rank " +
                                        std::to_string(peer_) + " is damaged: its " + what + " has CRC32C " +
                                        hex(crc) + " instead of " + hex(expected) +
                                        "; check the network hardware between these hosts");
}

}  // namespace pc
