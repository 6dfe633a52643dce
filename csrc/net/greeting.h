// A connection during its handshake: moves the handshake's bytes over a non-blocking socket.
#pragma once

#include <memory>
#include <optional>

#include "base/fd.h"
#include "base/status.h"
#include "net/byte_stream.h"
#include "wire/handshake.h"

namespace pc {

// Thread-safety: none; one owner.
class Greeting {
 public:
  Greeting(Fd socket, Handshake handshake) : socket_(std::move(socket)), handshake_(std::move(handshake)) {}
  int fd() const { return socket_.get(); }
  const Handshake& handshake() const { return handshake_; }
  Status write();  // sends the handshake's pending output; an initiator calls it first
  // Reads the bytes that have arrived and writes the response, even if they are wrong, so that the
  // peer receives the reason. After an error the connection cannot be used.
  Status move();
  Status decide(Decision decision);
  // Precondition: the handshake is done.
  ByteStream finish() { return ByteStream(std::move(socket_), handshake_.take_seal()); }

 private:
  Fd socket_;
  Handshake handshake_;
};

}  // namespace pc
