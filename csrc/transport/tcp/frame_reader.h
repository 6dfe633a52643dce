// Parses the bytes of a socket into frames for a Link. Payloads are received directly into their
// destination. The bytes after a payload arrive in the same system call, in a small buffer from
// which short frames are parsed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "net/byte_stream.h"
#include "wire/link.h"

namespace pc {

// Thread-safety: none; its transport's lock guards it.
class FrameReader {
 public:
  explicit FrameReader(Rank peer);  // `peer` appears in error messages
  // Reads until the socket is empty or about `budget` bytes have arrived. Returns the number of
  // system calls that returned bytes. After an error nothing more can be read. The error is damaged
  // data (kPeerFailure), an error of the operating system, or the end of the stream, see closed().
  Result<std::size_t> read(ByteStream& stream, Link& link, std::size_t budget);
  // Stores the rest of the current payload in `there`; see FrameIo.
  void redirect(std::span<std::byte> there) { payload_ = there; }
  bool closed() const { return closed_; }  // the peer has closed its side

 private:
  enum class At : uint8_t { kHeader, kDescription, kPayload, kTrailer };
  Result<std::size_t> fill(ByteStream& stream, bool& drained);
  Status parse(Link& link);
  Status read_header();
  Status begin_frame(Link& link);
  Status check_trailer(Link& link);
  Status damaged(const std::string& what, uint32_t crc, uint32_t expected) const;
  std::size_t buffered() const { return end_ - begin_; }

  const Rank peer_;
  bool closed_ = false;
  At at_ = At::kHeader;
  FrameHeader header_;            // of the frame to which payload_ belongs
  std::span<std::byte> payload_;  // destination of the current payload; empty in other states
  std::size_t filled_ = 0;        // bytes of payload_ received so far
  uint32_t crc_ = 0;              // checksum of payload_[0, filled_)
  std::unique_ptr<std::byte[]> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // the unparsed range of buffer_; empty while a payload is incomplete
};

}  // namespace pc
