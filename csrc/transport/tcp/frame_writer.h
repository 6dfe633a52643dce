// Serializes the frames of a Link to a socket. One system call sends many frames: short ones are
// copied together, and large payloads are sent in place, right after their checksum is computed.
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
  // Writes until nothing is left, the socket is full or about `budget` bytes were written. Returns
  // the number of system calls that moved bytes. An error comes from the operating system; nothing
  // more can be written after it.
  Result<std::size_t> write(ByteStream& stream, Link& link, std::size_t budget);
  // Copies pending payloads, so that no memory outside this object is needed for them any more; see
  // FrameIo.
  void keep_unsent();
  // Returns true while the socket has not accepted all bytes of the frames that the link has handed
  // over.
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
  std::size_t buffered_ = 0;  // bytes of buffer_ in use; all of it is free again when nothing is pending
  std::unique_ptr<std::byte[]> kept_;  // copies of payloads whose own memory may no longer be valid
  bool borrows_ = false;               // a part may refer to memory that this object does not own
  std::vector<iovec> parts_;    // what is sent next, in order: ranges of buffer_, of kept_ and of payloads
  std::vector<uint64_t> ends_;  // ends of the frames in parts_, counted like queued_
  uint64_t queued_ = 0, sent_ = 0;  // bytes since the first frame
};

}  // namespace pc
