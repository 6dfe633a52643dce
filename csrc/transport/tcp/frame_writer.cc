#include "transport/tcp/frame_writer.h"

#include <cstring>
#include <functional>
#include <optional>
#include <utility>

#include "wire/crc32c.h"

namespace pc {
namespace {

constexpr std::size_t kWriteBufferBytes = 64UL * 1024;
constexpr std::size_t kCopyBelow = 8UL * 1024;  // payloads up to this size are sent from a copy
// The number of bytes offered to the socket at once. Between two calls the peer runs out of data:
// over loopback, 16 MiB takes 30 % longer in pieces of 256 KiB, while pieces of more than 1 MiB
// gain nothing.
constexpr std::size_t kBatch = 1024UL * 1024;
// No frame is added while at least this many bytes are pending. A frame that becomes ready later,
// such as a control frame, must not wait behind a full batch.
constexpr std::size_t kRefillBelow = 256UL * 1024;
constexpr std::size_t kMaxParts = 256, kMaxFrames = 256;

}  // namespace

FrameWriter::FrameWriter() : buffer_(new std::byte[kWriteBufferBytes]) {
  parts_.reserve(kMaxParts);
  ends_.reserve(kMaxFrames);
}

Result<std::size_t> FrameWriter::write(ByteStream& stream, Link& link, std::size_t budget) {
  std::size_t calls = 0;
  for (std::size_t nbytes = 0; nbytes < budget;) {
    refill(link);
    if (!pending()) {
      PC_TRY(stream.flush());
      break;
    }
    PC_ASSIGN_OR_RETURN(const std::size_t count, stream.send(parts_));
    if (count == 0) break;
    advance(link, count);
    nbytes += count;
    ++calls;
  }
  return calls;
}

void FrameWriter::refill(Link& link) {
  if (queued_ - sent_ >= kRefillBelow) return;
  while (has_capacity()) {
    const std::optional<OutFrame> frame = link.next_frame();
    if (!frame) return;
    add(*frame);
  }
}

bool FrameWriter::has_capacity() const {
  constexpr std::size_t kMostCopied =
      kHeaderBytes + kMaxDescriptionBytes + kTrailerBytes + kCopyBelow + kTrailerBytes;
  constexpr std::size_t kMostParts = 2 + OutFrame::kMaxPieces;
  return queued_ - sent_ < kBatch && kWriteBufferBytes - buffered_ >= kMostCopied &&
         kMaxParts - parts_.size() >= kMostParts && ends_.size() < kMaxFrames;
}

void FrameWriter::add(const OutFrame& frame) {
  HeaderBytes header;
  encode(frame.header, header);
  std::memcpy(reserve(header.size()).data(), header.data(), header.size());
  if (!frame.description.empty())
    add_trailer(crc32c_copy(reserve(frame.description.size()).data(), frame.description));
  if (!frame.payload.empty()) {
    uint32_t crc = 0;
    if (frame.payload.size() > kCopyBelow) {
      borrows_ = true;
      frame.payload.each([&](std::span<const std::byte> piece) {
        add_part(piece);
        crc = crc32c(piece, crc);
      });
    } else {
      frame.payload.each([&](std::span<const std::byte> piece) {
        crc = crc32c_copy(reserve(piece.size()).data(), piece, crc);
      });
    }
    add_trailer(crc);
  }
  ends_.push_back(queued_);
}

void FrameWriter::add_trailer(uint32_t crc) {
  const std::span<std::byte> trailer = reserve(kTrailerBytes);
  for (std::size_t i = 0; i < kTrailerBytes; ++i) trailer[i] = static_cast<std::byte>(crc >> (8 * i));
}

// Returns the next bytes of buffer_, as part of the output.
std::span<std::byte> FrameWriter::reserve(std::size_t nbytes) {
  const std::span<std::byte> bytes(buffer_.get() + buffered_, nbytes);
  buffered_ += nbytes;
  add_part(bytes);
  return bytes;
}

void FrameWriter::add_part(std::span<const std::byte> bytes) {
  queued_ += bytes.size();
  if (!parts_.empty()) {
    iovec& last = parts_.back();
    if (static_cast<const std::byte*>(last.iov_base) + last.iov_len == bytes.data()) {
      last.iov_len += bytes.size();
      return;
    }
  }
  parts_.push_back({const_cast<std::byte*>(bytes.data()), bytes.size()});
}

void FrameWriter::keep_unsent() {
  if (!borrows_) return;
  const auto is_ours = [this](const iovec& part) {
    const std::less<const void*> before;
    return !before(part.iov_base, buffer_.get()) && before(part.iov_base, buffer_.get() + kWriteBufferBytes);
  };
  std::size_t nbytes = 0;
  for (const iovec& part : parts_) nbytes += is_ours(part) ? 0 : part.iov_len;
  auto memory = std::make_unique_for_overwrite<std::byte[]>(nbytes);  // no more than a batch
  std::byte* next = memory.get();
  for (iovec& part : parts_) {
    if (is_ours(part)) continue;
    std::memcpy(next, part.iov_base, part.iov_len);
    part.iov_base = next;
    next += part.iov_len;
  }
  kept_ = std::move(memory);
  borrows_ = false;
}

void FrameWriter::advance(Link& link, std::size_t count) {
  sent_ += count;
  std::vector<iovec>::iterator part = parts_.begin();
  for (; part != parts_.end() && count >= part->iov_len; ++part) count -= part->iov_len;
  parts_.erase(parts_.begin(), part);
  if (count > 0) {
    parts_.front().iov_base = static_cast<std::byte*>(parts_.front().iov_base) + count;
    parts_.front().iov_len -= count;
  }
  if (parts_.empty()) {
    buffered_ = 0;
    kept_.reset();
    borrows_ = false;
  }
  std::vector<uint64_t>::iterator end = ends_.begin();
  // the socket now has all bytes of these frames
  for (; end != ends_.end() && *end <= sent_; ++end) link.written();
  ends_.erase(ends_.begin(), end);
}

}  // namespace pc
