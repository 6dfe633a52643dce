// Turns the bytes of a socket into frames for a Link. Payloads are received where they belong; what follows them comes
// in the same system call, into a small buffer from which short frames are parsed.
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
  explicit FrameReader(Rank peer);  // for messages
  // Reads until the socket is empty or about `budget` bytes have come. How many system calls brought something. An
  // error means that nothing more can be read: damage (kPeerFailure), the operating system's, or see closed().
  Result<std::size_t> read(ByteStream& stream, Link& link, std::size_t budget);
  // What is still to come of the current payload goes `there`; see FrameIo.
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
  FrameHeader header_;            // of the frame that payload_ belongs to
  std::span<std::byte> payload_;  // where the current payload goes; empty in other states
  std::size_t filled_ = 0;        // of payload_
  uint32_t crc_ = 0;              // of payload_[0, filled_)
  std::unique_ptr<std::byte[]> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // of what is in buffer_; empty while a payload is incomplete
};

}  // namespace pc
