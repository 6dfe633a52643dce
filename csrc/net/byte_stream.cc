#include "net/byte_stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

namespace pc {
namespace {

constexpr std::size_t kRecordBytes = kMaxSealedBytes + kSealOverheadBytes, kInBytes = 2 * kRecordBytes;
constexpr std::size_t kFirstInBytes = 4096;  // control connections never need more

bool later() { return errno == EAGAIN || errno == EINTR || errno == ENOBUFS; }

// A position in the parts of a message. Each call of each() continues where the last call ended.
class Cursor {
 public:
  explicit Cursor(std::span<const iovec> parts) : parts_(parts) {}
  std::size_t left() const {
    std::size_t nbytes = 0;
    for (const iovec& part : parts_) nbytes += part.iov_len;
    return nbytes - at_;
  }
  // Calls copy(address, number of bytes) for each piece of the next bytes, `most` bytes or fewer.
  // Returns their total number.
  template <class Copy>
  std::size_t each(std::size_t most, Copy&& copy) {
    std::size_t done = 0;
    while (done < most && !parts_.empty()) {
      const std::size_t count = std::min(most - done, parts_.front().iov_len - at_);
      copy(static_cast<std::byte*>(parts_.front().iov_base) + at_, count);
      done += count;
      at_ += count;
      if (at_ < parts_.front().iov_len) break;
      parts_ = parts_.subspan(1);
      at_ = 0;
    }
    return done;
  }

 private:
  std::span<const iovec> parts_;
  std::size_t at_ = 0;  // offset in the first remaining part
};

}  // namespace

struct ByteStream::Sealed {
  explicit Sealed(std::unique_ptr<Seal> given) : seal(std::move(given)) {}
  // Returns the size of the record that begins at in_begin, or 0 if the record is incomplete.
  Result<std::size_t> whole_record() const;
  Result<bool> read_record(int fd);
  Status open_record(std::size_t nbytes);

  const std::unique_ptr<Seal> seal;
  // Received bytes: the plain text of the record that was opened last, [plain_begin, plain_end),
  // then the sealed records that have arrived after it, [in_begin, in_end). The vector grows to
  // kInBytes once a record needs it.
  std::vector<std::byte> in = std::vector<std::byte>(kFirstInBytes);
  std::size_t plain_begin = 0, plain_end = 0, in_begin = 0, in_end = 0;
  Status broken;  // not OK once the received bytes are unusable
  // Sealed bytes that are not yet sent: at most one record.
  std::vector<std::byte> out;
  std::size_t out_begin = 0, out_end = 0;
};

ByteStream::ByteStream() = default;
ByteStream::ByteStream(Fd socket, std::unique_ptr<Seal> seal)
    : socket_(std::move(socket)),
      sealed_(seal == nullptr ? nullptr : std::make_unique<Sealed>(std::move(seal))) {}
ByteStream::ByteStream(ByteStream&&) noexcept = default;
ByteStream& ByteStream::operator=(ByteStream&&) noexcept = default;
ByteStream::~ByteStream() = default;

Result<ByteStream::Received> ByteStream::receive(std::span<const iovec> parts) {
  if (sealed_) return receive_sealed(parts);
  ssize_t count = 0;
  if (parts.size() == 1) {
    count = ::recv(fd(), parts.front().iov_base, parts.front().iov_len, 0);
  } else {
    msghdr message = {};
    message.msg_iov = const_cast<iovec*>(parts.data());
    message.msg_iovlen = static_cast<decltype(message.msg_iovlen)>(parts.size());
    count = ::recvmsg(fd(), &message, 0);
  }
  if (count < 0) return later() ? Result<Received>(Received{}) : system_error("receiving", errno);
  return Received{static_cast<std::size_t>(count), count == 0};
}

Result<std::size_t> ByteStream::send(std::span<const iovec> parts) {
  if (sealed_) return send_sealed(parts);
  ssize_t count = 0;
  if (parts.size() == 1) {
    count = ::send(fd(), parts.front().iov_base, parts.front().iov_len, MSG_NOSIGNAL);
  } else {
    msghdr message = {};
    message.msg_iov = const_cast<iovec*>(parts.data());
    message.msg_iovlen = static_cast<decltype(message.msg_iovlen)>(parts.size());
    count = ::sendmsg(fd(), &message, MSG_NOSIGNAL);
  }
  if (count >= 0) return static_cast<std::size_t>(count);
  return later() ? Result<std::size_t>(std::size_t{0}) : system_error("sending", errno);
}

Result<ByteStream::Received> ByteStream::receive_sealed(std::span<const iovec> parts) {
  Sealed& s = *sealed_;
  Cursor to(parts);
  Received got;
  for (;;) {
    const std::size_t ready = s.plain_end - s.plain_begin;
    got.nbytes += to.each(ready, [&](std::byte* where, std::size_t count) {
      std::memcpy(where, s.in.data() + s.plain_begin, count);
      s.plain_begin += count;
    });
    if (to.left() == 0) return got;
    const Result<bool> more = s.read_record(fd());
    if (more.is_ok() && more.value()) continue;
    if (got.nbytes > 0 || more.is_ok()) return got;  // the next call returns the end or the error
    if (more.status().code() == Code::kPeerExited) return Received{0, true};
    return more.status();
  }
}

bool ByteStream::holds_bytes() const {
  if (!sealed_) return false;
  const Sealed& s = *sealed_;
  if (s.plain_begin < s.plain_end || !s.broken.is_ok()) return true;
  const Result<std::size_t> record = s.whole_record();
  return !record.is_ok() || record.value() > 0;
}

Result<std::size_t> ByteStream::Sealed::whole_record() const {
  const std::size_t have = in_end - in_begin;
  if (have < kSealHeadBytes) return std::size_t{0};
  PC_ASSIGN_OR_RETURN(
      const std::size_t nbytes,
      sealed_record_nbytes(std::span<const std::byte, kSealHeadBytes>(in.data() + in_begin, kSealHeadBytes)));
  return have >= nbytes ? nbytes : 0;
}

// Returns true if another record has been opened, false if no whole record has arrived yet. Fails
// with kPeerExited if the peer has closed the connection.
Result<bool> ByteStream::Sealed::read_record(int fd) {
  PC_TRY(broken);
  for (;;) {
    const Result<std::size_t> nbytes = whole_record();
    if (!nbytes.is_ok()) return broken = nbytes.status();
    if (nbytes.value() > 0) {
      broken = open_record(nbytes.value());
      return broken.is_ok() ? Result<bool>(true) : broken;
    }
    if (in_end == in.size() && in_begin == 0) in.resize(kInBytes);
    if (in_begin > 0) {
      std::memmove(in.data(), in.data() + in_begin, in_end - in_begin);  // moves less than a record
      in_end -= in_begin;
      in_begin = plain_begin = plain_end = 0;
    }
    const ssize_t count = ::recv(fd, in.data() + in_end, in.size() - in_end, 0);
    if (count == 0) return Status(Code::kPeerExited, "closed");
    if (count < 0) return later() ? Result<bool>(false) : system_error("receiving", errno);
    in_end += static_cast<std::size_t>(count);
  }
}

Status ByteStream::Sealed::open_record(std::size_t nbytes) {
  PC_TRY(seal->receives.open({in.data() + in_begin, nbytes}));
  plain_begin = in_begin + kSealHeadBytes;
  plain_end = in_begin + nbytes - kSealTagBytes;
  in_begin += nbytes;
  return Status::ok();
}

Result<std::size_t> ByteStream::send_sealed(std::span<const iovec> parts) {
  Sealed& s = *sealed_;
  Cursor from(parts);
  std::size_t taken = 0;
  for (;;) {
    const Status flushed = flush();
    if (!flushed.is_ok()) return flushed;
    if (unsent() || from.left() == 0) return taken;
    s.out.resize(std::min(from.left(), kMaxSealedBytes) + kSealOverheadBytes);
    std::byte* next = s.out.data() + kSealHeadBytes;
    const std::size_t nbytes = from.each(kMaxSealedBytes, [&](const std::byte* where, std::size_t count) {
      std::memcpy(next, where, count);
      next += count;
    });
    s.seal->sends.seal({s.out.data(), nbytes + kSealOverheadBytes});
    s.out_begin = 0;
    s.out_end = nbytes + kSealOverheadBytes;
    taken += nbytes;
  }
}

Status ByteStream::flush() {
  while (unsent()) {
    Sealed& s = *sealed_;
    const ssize_t count = ::send(fd(), s.out.data() + s.out_begin, s.out_end - s.out_begin, MSG_NOSIGNAL);
    if (count < 0) return later() ? Status::ok() : system_error("sending", errno);
    s.out_begin += static_cast<std::size_t>(count);
  }
  return Status::ok();
}

bool ByteStream::unsent() const { return sealed_ && sealed_->out_begin < sealed_->out_end; }

}  // namespace pc
