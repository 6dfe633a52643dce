#include "transport/tcp/frame_writer.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "wire/crc32c.h"

namespace pc {
namespace {

constexpr std::size_t kBufferBytes = 64 * 1024;
constexpr std::size_t kCopyBelow = 8 * 1024;  // payloads up to this are copied with the checksum
constexpr std::size_t kPiece =
    128 * 1024;  // of a payload per call: its peer checks one piece while we send the next

using Trailer = std::array<std::byte, kTrailerBytes>;
Trailer trailer_of(uint32_t crc) {
  Trailer bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(crc >> (8 * i));
  return bytes;
}

}  // namespace

FrameWriter::FrameWriter() : buffer_(new std::byte[kBufferBytes]) {}

Result<std::size_t> FrameWriter::write(int fd, Link& link, std::size_t budget) {
  std::size_t calls = 0;
  for (std::size_t nbytes = 0; nbytes < budget;) {
    gather(link);
    if (!pending()) break;
    PC_ASSIGN_OR_RETURN(const std::size_t count, send_gathered(fd));
    if (count == 0) break;
    advance(link, count);
    nbytes += count;
    ++calls;
  }
  return calls;
}

void FrameWriter::gather(Link& link) {
  constexpr std::size_t kMost = kHeaderBytes + kCopyBelow + kTrailerBytes;
  if (begin_ == end_) begin_ = end_ = 0;
  while (payload_.empty() && kBufferBytes - end_ >= kMost) {
    const std::optional<Link::OutFrame> frame = link.next_frame();
    if (!frame) break;
    append(frame->header);
    if (frame->payload.size() > kCopyBelow) {
      payload_ = frame->payload;
      sent_ = checked_ = 0;
      crc_ = 0;
      break;
    }
    if (!frame->payload.empty()) {
      const uint32_t crc = crc32c_copy(buffer_.get() + end_, frame->payload);
      end_ += frame->payload.size();
      append(trailer_of(crc));
    }
    link.written();  // the socket's business from here on; the payload is free
  }
  if (!payload_.empty() && checked_ == sent_) {
    const std::size_t count = std::min(kPiece, payload_.size() - checked_);
    crc_ = crc32c(payload_.subspan(checked_, count), crc_);
    checked_ += count;
  }
}

void FrameWriter::append(std::span<const std::byte> bytes) {
  std::memcpy(buffer_.get() + end_, bytes.data(), bytes.size());
  end_ += bytes.size();
}

// Bytes sent; 0 if the socket is full.
Result<std::size_t> FrameWriter::send_gathered(int fd) {
  const Trailer trailer = trailer_of(crc_);
  ssize_t count = 0;
  if (payload_.empty()) {
    count = ::send(fd, buffer_.get() + begin_, end_ - begin_, MSG_NOSIGNAL);
  } else {
    iovec parts[3] = {{buffer_.get() + begin_, end_ - begin_},
                      {const_cast<std::byte*>(payload_.data()) + sent_, checked_ - sent_},
                      {const_cast<std::byte*>(trailer.data()), trailer.size()}};
    msghdr message = {};
    message.msg_iov = parts;
    message.msg_iovlen = checked_ == payload_.size() ? 3 : 2;
    count = ::sendmsg(fd, &message, MSG_NOSIGNAL);
  }
  if (count >= 0) return static_cast<std::size_t>(count);
  if (errno == EAGAIN || errno == EINTR || errno == ENOBUFS) return std::size_t{0};
  return system_error("sending", errno);
}

void FrameWriter::advance(Link& link, std::size_t count) {
  const std::size_t from_buffer = std::min(count, end_ - begin_);
  begin_ += from_buffer;
  count -= from_buffer;
  if (payload_.empty()) return;
  const std::size_t from_payload = std::min(count, checked_ - sent_);
  sent_ += from_payload;
  count -= from_payload;
  if (sent_ < payload_.size()) return;
  begin_ = end_ =
      0;  // empty: it goes before the payload. What is left of the trailer goes before the next frame
  const Trailer trailer = trailer_of(crc_);
  append(std::span<const std::byte>(trailer).subspan(count));
  payload_ = {};
  link.written();
}

}  // namespace pc
