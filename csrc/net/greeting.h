// A connection on which hands are being shaken: moves the handshake's bytes over a socket that does not block.
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
  Status write();  // what the handshake has to say; an initiator begins with it
  // Reads what has come, and writes what that asks for, after an error too: the other side shall learn why. An error: this
  // connection is of no use.
  Status move();
  Status decide(Decision decision);
  ByteStream finish() {
    return ByteStream(std::move(socket_), handshake_.take_seal());
  }  // when the handshake is done

 private:
  Fd socket_;
  Handshake handshake_;
};

}  // namespace pc
