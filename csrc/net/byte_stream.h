// The bytes of one connection after its handshake, in plain text or sealed. It is used like the
// non-blocking socket itself.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <span>

#include "base/fd.h"
#include "base/status.h"
#include "wire/seal.h"

namespace pc {

// Thread-safety: none; one owner.
class ByteStream {
 public:
  struct Received {
    std::size_t nbytes = 0;
    bool end = false;  // the peer will send no more bytes
  };
  ByteStream();
  explicit ByteStream(Fd socket, std::unique_ptr<Seal> seal = nullptr);  // null seal: plain text
  ByteStream(ByteStream&&) noexcept;
  ByteStream& operator=(ByteStream&&) noexcept;
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;
  ~ByteStream();
  bool valid() const { return socket_.valid(); }
  int fd() const { return socket_.get(); }
  void reset() { socket_.reset(); }

  // Fills `parts` with the bytes that have arrived. Fails with the operating system's error, or
  // with kPeerFailure if a sealed record cannot be opened.
  Result<Received> receive(std::span<const iovec> parts);
  // Returns true if the next receive() returns bytes or an error, even if poll() does not report
  // the socket as readable.
  bool holds_bytes() const;
  // Returns the number of bytes accepted, which is 0 if there is no room. Accepted bytes are not
  // read from `parts` again, but may not have been sent: see unsent().
  Result<std::size_t> send(std::span<const iovec> parts);
  Status flush();  // sends bytes that send() has accepted, as far as the socket has room
  bool unsent() const;

 private:
  struct Sealed;
  Result<Received> receive_sealed(std::span<const iovec> parts);
  Result<std::size_t> send_sealed(std::span<const iovec> parts);

  Fd socket_;
  std::unique_ptr<Sealed> sealed_;
};

}  // namespace pc
