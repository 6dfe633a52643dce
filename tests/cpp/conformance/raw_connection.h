// A peer made by hand: a blocking socket that sends exactly what a test specifies, and waits at
// most ten seconds for any data.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "net/socket.h"
#include "wire/handshake.h"
#include "wire/seal.h"

namespace pc::testing {

inline Credentials credentials_of(int job, int key = 1, bool encrypts = false) {
  Credentials made;
  made.job[0] = static_cast<std::byte>(job);
  JobKey::Bytes bytes = {};
  bytes[0] = static_cast<std::byte>(key);
  made.key = JobKey(bytes);
  made.encrypts = encrypts;
  made.key_source = "key " + std::to_string(key) + " of the test";
  return made;
}

class RawConnection {
 public:
  explicit RawConnection(const std::string& address) {
    const Result<SocketAddress> parsed = parse_endpoint(address);
    EXPECT_TRUE(parsed.is_ok()) << address;
    fd_.reset(::socket(parsed.value().storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(fd_.get(), parsed.value().get(), parsed.value().length), 0) << address;
    const timeval wait_limit{10, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &wait_limit, sizeof wait_limit);
  }
  // Sends one record, sealed if the handshake has agreed on sealing.
  void send(std::span<const std::byte> bytes) {
    if (seal_ == nullptr) return send_raw(bytes);
    std::vector<std::byte> record(bytes.size() + kSealOverheadBytes);
    begin_sealed_record(record);
    std::copy(bytes.begin(), bytes.end(), record.begin() + kSealHeadBytes);
    seal_->sends.seal(record);
    send_raw(record);
  }
  void send(const std::string& text) { send(std::as_bytes(std::span(text))); }
  // Returns how many of `bytes` arrived before the other side closed.
  std::size_t receive(std::span<std::byte> bytes) {
    const ssize_t got = ::recv(fd_.get(), bytes.data(), bytes.size(), MSG_WAITALL);
    return got < 0 ? 0 : static_cast<std::size_t>(got);
  }
  std::size_t receive(std::size_t count) {
    std::vector<std::byte> bytes(count);
    return receive(bytes);
  }
  // Returns true if the other side ends the connection without another byte, and false if it is
  // only silent.
  bool is_cut_off() {
    std::byte byte;
    const ssize_t got = ::recv(fd_.get(), &byte, 1, 0);
    return got == 0 || (got < 0 && errno == ECONNRESET);
  }
  // Completes the handshake as its initiator. Returns the error that our side found, or
  // kPeerFailure if the other side closed the connection.
  Status shake_hands(const Hello& ours, const Credentials& credentials) {
    PC_ASSIGN_OR_RETURN(Handshake handshake, Handshake::initiator(credentials, ours));
    while (!handshake.done()) {
      const std::size_t nbytes = handshake.output().size();
      send(handshake.output());
      handshake.sent(nbytes);
      const std::size_t wanted = handshake.input().size();
      if (receive(handshake.input()) != wanted) return Status(Code::kPeerFailure, "hung up");
      PC_TRY(handshake.received(wanted));
    }
    seal_ = handshake.take_seal();
    return Status::ok();
  }
  void hang_up() { fd_.reset(); }
  void reset() {
    const linger at_once{1, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    fd_.reset();
  }

 private:
  void send_raw(std::span<const std::byte> bytes) {
    EXPECT_EQ(::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  Fd fd_;
  std::unique_ptr<Seal> seal_;
};

}  // namespace pc::testing
