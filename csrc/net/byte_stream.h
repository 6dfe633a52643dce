// The bytes of one connection after its handshake: as they are, or sealed. Used like the socket itself, which does not block.
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
    bool end = false;  // the other side has closed its direction
  };
  ByteStream();
  explicit ByteStream(Fd socket, std::unique_ptr<Seal> seal = nullptr);  // null: bytes travel as they are
  ByteStream(ByteStream&&) noexcept;
  ByteStream& operator=(ByteStream&&) noexcept;
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;
  ~ByteStream();
  bool valid() const { return socket_.valid(); }
  int fd() const { return socket_.get(); }
  void reset() { socket_.reset(); }

  // Fills `parts` as far as bytes have come. An error is the operating system's, or kPeerFailure for what does not open.
  Result<Received> receive(std::span<const iovec> parts);
  bool holds_bytes() const;  // the next receive() will not come back empty, whatever the socket says
  // Takes as many bytes as there is room for; 0: none. What was taken is not looked at again, but may not have left: see unsent().
  Result<std::size_t> send(std::span<const iovec> parts);
  Status flush();  // what was taken and has not left, as far as the socket takes it
  bool unsent() const;

 private:
  struct Sealed;
  Result<Received> receive_sealed(std::span<const iovec> parts);
  Result<std::size_t> send_sealed(std::span<const iovec> parts);

  Fd socket_;
  std::unique_ptr<Sealed> sealed_;
};

}  // namespace pc
