// Turns the frames of a Link into bytes on a socket. Short frames are copied together and leave in one system call;
// large payloads are sent from where they lie, checksummed piece by piece right before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "wire/link.h"

namespace pc {

// Thread-safety: none; its transport's lock guards it.
class FrameWriter {
 public:
  FrameWriter();
  // Writes until nothing is left, the socket is full or about `budget` bytes have gone. How many system calls moved
  // something. An error is the operating system's: nothing more can be written.
  Result<std::size_t> write(int fd, Link& link, std::size_t budget);
  // Bytes that the link has handed over and the socket has not taken.
  bool pending() const { return begin_ != end_ || !payload_.empty(); }

 private:
  void gather(Link& link);
  void append(std::span<const std::byte> bytes);
  Result<std::size_t> send_gathered(int fd);
  void advance(Link& link, std::size_t count);

  std::unique_ptr<std::byte[]> buffer_;
  std::size_t begin_ = 0, end_ = 0;     // of what is in buffer_; goes out before payload_
  std::span<const std::byte> payload_;  // of the frame that is out; goes without copy
  std::size_t sent_ = 0, checked_ = 0;  // of payload_
  uint32_t crc_ = 0;                    // of payload_[0, checked_)
};

}  // namespace pc
