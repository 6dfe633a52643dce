// Turns the frames of a Link into bytes on a socket. Many frames leave in one system call: short ones are copied together,
// large payloads are sent from where they lie, checksummed right before.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "net/byte_stream.h"
#include "wire/link.h"

namespace pc {

// Thread-safety: none; its transport's lock guards it.
class FrameWriter {
 public:
  FrameWriter();
  // Writes until nothing is left, the socket is full or about `budget` bytes have gone. How many system calls moved
  // something. An error is the operating system's: nothing more can be written.
  Result<std::size_t> write(ByteStream& stream, Link& link, std::size_t budget);
  // From now on nothing outside this object is needed for what is pending; see FrameIo.
  void keep_unsent();
  // Bytes that the link has handed over and the socket has not taken.
  bool pending() const { return !parts_.empty(); }

 private:
  void refill(Link& link);
  bool has_capacity() const;
  void add(const OutFrame& frame);
  void add_trailer(uint32_t crc);
  void add_part(std::span<const std::byte> bytes);
  std::span<std::byte> reserve(std::size_t nbytes);
  void advance(Link& link, std::size_t count);

  std::unique_ptr<std::byte[]> buffer_;  // headers, trailers and small payloads
  std::size_t buffered_ = 0;             // of buffer_; all of it is free again when nothing is pending
  std::unique_ptr<std::byte[]> kept_;    // payloads whose own memory has gone
  bool borrows_ = false;                 // a part may lie in memory that is not ours
  std::vector<iovec> parts_;             // what goes next, in order: pieces of buffer_, kept_ and of payloads
  std::vector<uint64_t> ends_;           // of the frames in parts_, in bytes since the beginning
  uint64_t queued_ = 0, sent_ = 0;       // bytes since the beginning
};

}  // namespace pc
