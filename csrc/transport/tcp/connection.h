// One connection to a peer: its socket, the protocol on it, and the partly read and partly written
// frames.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "net/byte_stream.h"
#include "transport/tcp/frame_reader.h"
#include "transport/tcp/frame_writer.h"
#include "wire/link.h"

namespace pc {

// Thread-safety: none; its transport's lock guards it.
class Connection final : private FrameIo {
 public:
  // `epoll_fd` is not owned. Until close(), the epoll watches the socket and returns this object as
  // the data of the event.
  Connection(ByteStream stream, int epoll_fd, Rank me, Rank peer, uint32_t epoch, const LinkLimits& limits);
  ~Connection() { unwatch(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  Status watch();  // call it once, before any other method
  Link& link() { return link_; }
  Rank peer() const { return peer_; }
  bool open() const { return stream_.valid(); }
  // why_closed() returns why the connection was closed, or OK while it is open. has_failed()
  // returns true if that reason is an error other than kPeerExited (the peer sent GOODBYE) and
  // kAborted (this rank has shut down).
  const Status& why_closed() const { return why_closed_; }
  bool has_failed() const {
    return !why_closed_.is_ok() && why_closed_.code() != Code::kPeerExited &&
           why_closed_.code() != Code::kAborted;
  }
  bool unsent() const;  // a frame waits to be written, or a message waits for the peer's CLEAR
  // read() and write() move a bounded number of bytes. They return the number of system calls that
  // moved bytes, or 1 after a failure. A failure closes the connection and completes all posted
  // operations.
  std::size_t read();
  std::size_t write();
  void read_the_rest();           // reads what the peer sent before it left, at most what a socket buffers
  void close(const Status& why);  // completes all operations, already posted and later ones, with `why`
  void finish_writing();          // sends nothing more; the peer sees an orderly end
  void close_in_child() noexcept { stream_.reset(); }

 private:
  void keep_unsent() override { writer_.keep_unsent(); }
  void redirect(std::span<std::byte> there) override { reader_.redirect(there); }
  void broken(const Status& why);
  Status want_writable(bool wanted);
  void unwatch();

  const Rank me_, peer_;
  const int epoll_fd_;
  ByteStream stream_;
  std::string peer_address_;
  Link link_;
  FrameReader reader_;
  FrameWriter writer_;
  bool watching_writable_ = false;
  Status why_closed_;
};

}  // namespace pc
