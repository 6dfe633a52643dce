#include "transport/tcp/connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "transport/budget.h"
#include "transport/tcp/sockets.h"

namespace pc {
namespace {

constexpr int kLastReads = 16;  // together they cover more than a socket's buffer holds

}  // namespace

Connection::Connection(ByteStream stream, int epoll_fd, Rank me, Rank peer, uint32_t epoch,
                       const LinkLimits& limits)
    : me_(me),
      peer_(peer),
      epoll_fd_(epoll_fd),
      stream_(std::move(stream)),
      peer_address_(to_string(peer_address(stream_.fd()))),
      link_(me, peer, epoch, limits, this),
      reader_(peer) {}

Status Connection::watch() {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = this;
  if (::epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, stream_.fd(), &event) == 0) return Status::ok();
  return system_error("epoll_ctl for the connection to rank " + std::to_string(peer_), errno)
      .with_peer(peer_);
}

void Connection::unwatch() {
  if (open()) ::epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, stream_.fd(), nullptr);
}

bool Connection::unsent() const {
  return open() &&
         (writer_.pending() || stream_.unsent() || link_.has_output() || link_.counts().posted_sends > 0);
}

std::size_t Connection::read() {
  if (!open()) return 0;
  const Result<std::size_t> moved = reader_.read(stream_, link_, kBudgetBytes);
  if (moved.is_ok()) return moved.value();
  broken(moved.status());
  return 1;
}

void Connection::read_the_rest() {
  for (int reads = 0; reads < kLastReads && read() > 0;) ++reads;
}

std::size_t Connection::write() {
  if (!open()) return 0;
  const Result<std::size_t> moved = writer_.write(stream_, link_, kBudgetBytes);
  if (!moved.is_ok()) {
    // The peer may have sent the reason before it closed the connection, so all that it sent is
    // read first.
    read_the_rest();
    if (open()) broken(moved.status());
    return 1;
  }
  if (const Status watched = want_writable(writer_.pending() || stream_.unsent() || link_.has_output());
      !watched.is_ok()) {
    broken(watched);
    return 1;
  }
  return moved.value();
}

// Writability is watched only while output is pending; otherwise the reactor would never sleep.
Status Connection::want_writable(bool wanted) {
  if (wanted == watching_writable_) return Status::ok();
  epoll_event event{};
  event.events = EPOLLIN;
  if (wanted) event.events |= EPOLLOUT;
  event.data.ptr = this;
  if (::epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, stream_.fd(), &event) != 0)
    return system_error("epoll_ctl", errno);
  watching_writable_ = wanted;
  return Status::ok();
}

void Connection::broken(const Status& why) {
  if (link_.peer_sent_goodbye()) {
    return close(Status(Code::kPeerExited, "rank " + std::to_string(peer_) + " has shut down"));
  }
  // A peer that has read this rank's goodbye may close the connection without sending a goodbye.
  // The end is then the effect of this rank's own shutdown. Damaged data and a reset keep their own
  // codes.
  if (link_.sends_goodbye() && reader_.closed())
    return close(Status(Code::kAborted, "this rank has shut down"));
  // Callers see an error of the operating system (connection reset, timed out) as a failure of the
  // peer.
  const Code code = why.code() == Code::kSystem ? Code::kPeerFailure : why.code();
  close(Status(code, "connection to rank " + std::to_string(peer_) + " (" + peer_address_ +
                         ") lost: " + why.message()));
}

void Connection::finish_writing() {
  if (open()) ::shutdown(stream_.fd(), SHUT_WR);
}

void Connection::close(const Status& why) {
  unwatch();
  stream_.reset();
  why_closed_ = why.with_rank(me_).with_peer(peer_);
  link_.fail(why_closed_);
}

}  // namespace pc
