#include "failure/control_thread.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <map>
#include <mutex>
#include <thread>

#include "base/byte_units.h"
#include "base/clock.h"
#include "base/start_thread.h"

namespace pc {
namespace {

using Command = std::function<void(ControlPlane&, TimePoint)>;

// Limit of the unsent bytes for a peer that does not read, for example a stopped process. Beyond
// this limit the peer counts as lost.
constexpr std::size_t kMostUnsent = kMiB;
constexpr std::size_t kReadsPerPoll = 16;

int open_pidfd(int64_t pid) {
  return pid <= 0 ? -1 : static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0));
}

}  // namespace

struct ControlThread::State final : ControlHost, std::enable_shared_from_this<ControlThread::State> {
  struct Peer {
    ByteStream socket;
    Fd process;
    ControlReader reader;
    std::vector<std::byte> unsent;
    bool watching_writable = false;
    // why the connection is unusable; reported to the ControlPlane while none of its methods runs
    std::string broken;
  };

  explicit State(ControlOptions given)
      : options(std::move(given)),
        peers(options.sockets.size()),
        plane(options.rank, options.remote, options.epoch, *this) {}

  Status open();
  void run();
  bool post(Command commands);  // returns false if commands are no longer accepted

  // ---- used only by the control thread
  void serve(const epoll_event& event);
  void read(Rank rank, bool reads_dead = true);
  void broke(Rank rank, const std::string& why);
  void unwatch(int fd);
  Status send(Peer& peer);
  void take_commands();
  void flush();
  void flush(Peer& peer);
  void watch_writable(Peer& peer, Rank rank, bool wanted);
  void leave();
  Status watch(int fd, uint64_t tag);
  Peer& at(Rank rank) { return peers[static_cast<std::size_t>(rank)]; }
  bool known(Rank rank) const {
    return rank >= 0 && static_cast<std::size_t>(rank) < peers.size() && rank != options.rank;
  }
  std::shared_ptr<ControlledGroup> group(uint32_t id) {
    const std::lock_guard lock(mutex);
    const auto found = groups.find(id);
    return found == groups.end() ? nullptr : found->second;
  }
  template <class Notify>
  void for_each_group(Notify&& notify);

  // ---- ControlHost
  std::span<const Rank> members(uint32_t id) override {
    held = group(id);
    return held == nullptr ? std::span<const Rank>() : held->world_ranks();
  }
  CallReport report(const CallId& call, bool find_where) override;
  void send(Rank peer, const ControlMessage& message) override {
    if (known(peer) && at(peer).socket.valid()) encode(message, at(peer).unsent);
  }
  void end_call(const CallId& call, const CallEnd& why) override {
    if (const auto calls = group(call.group)) calls->end_call(call.sequence, why);
  }
  void failure_report(const CallId& call, const CallEnd& why, std::vector<RankStatus> statuses) override {
    if (const auto calls = group(call.group)) calls->failure_report(call.sequence, why, statuses);
  }
  void surveyed(const CallId& call, std::vector<RankStatus> statuses) override {
    if (const auto calls = group(call.group)) calls->surveyed(call.sequence, statuses);
  }
  void peer_died(Rank peer, const std::string& cause) override {
    ended(peer, Status(Code::kPeerFailure, cause).with_cause(cause));
  }
  void peer_leaving(uint32_t id, Rank peer) override {
    if (const auto calls = group(id)) calls->peer_leaving(peer);
  }
  // TCP connections report the exit too, after everything that was sent on them. Shared memory has
  // no such message.
  void peer_exited(Rank peer) override {
    for_each_group([peer](ControlledGroup& calls) { calls.peer_exited(peer); });
  }
  void excluded(Rank by, const std::string& cause) override {
    ended(by, Status(Code::kExcluded, "the others took this rank for dead: " + cause).with_cause(cause));
  }
  void ended(Rank peer, const Status& why);

  static constexpr uint64_t kCommandTag = ~uint64_t{0}, kPrintTag = kCommandTag - 1,
                            kProcess = uint64_t{1} << 32;

  ControlOptions options;
  Fd epoll, command_event;
  std::vector<Peer> peers;  // by world rank
  ControlPlane plane;
  std::shared_ptr<ControlledGroup> held;  // keeps alive the group that members() has returned
  std::vector<CallId> searched;           // calls that wait for the program's position
  bool stopping = false;
  std::thread thread;

  std::mutex mutex;            // guards the members below
  bool takes_commands = true;  // false once the thread has taken its last commands
  std::vector<Command> commands;
  std::map<uint32_t, std::shared_ptr<ControlledGroup>> groups;
  std::map<Rank, Status> ended_peers;
};

Status ControlThread::State::open() {
  epoll.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return system_error("epoll_create for the control thread", errno);
  command_event.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!command_event.valid()) return system_error("eventfd for the control thread", errno);
  PC_TRY(watch(command_event.get(), kCommandTag));
  if (options.print_request >= 0) PC_TRY(watch(options.print_request, kPrintTag));
  for (std::size_t i = 0; i < peers.size(); ++i) {
    peers[i].socket = std::move(options.sockets[i]);
    if (!peers[i].socket.valid()) continue;
    PC_TRY(watch(peers[i].socket.fd(), i));
    // A pidfd reports the end of the process even if a forked child keeps the peer's sockets open.
    // Where pidfds are not available, only the sockets report it.
    peers[i].process.reset(i < options.pids.size() ? open_pidfd(options.pids[i]) : -1);
    if (peers[i].process.valid()) PC_TRY(watch(peers[i].process.get(), kProcess | i));
  }
  return Status::ok();
}

Status ControlThread::State::watch(int fd, uint64_t tag) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = tag;
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) == 0) return Status::ok();
  return system_error("epoll_ctl for the control thread", errno);
}

bool ControlThread::State::post(Command one) {
  const std::lock_guard lock(mutex);
  if (!takes_commands) return false;
  commands.push_back(std::move(one));
  if (commands.size() == 1) ::eventfd_write(command_event.get(), 1);
  return true;
}

void ControlThread::State::run() {
  std::array<epoll_event, 32> events;
  while (!stopping) {
    const std::optional<TimePoint> next = plane.next_tick();
    const int ms = next ? Deadline(*next).slice_ms(60'000) : -1;
    const int count = ::epoll_wait(epoll.get(), events.data(), static_cast<int>(events.size()), ms);
    for (int i = 0; i < count; ++i) serve(events[static_cast<std::size_t>(i)]);
    take_commands();
    plane.tick(now());
    flush();
  }
  take_commands();
  leave();
}

void ControlThread::State::serve(const epoll_event& event) {
  if (event.data.u64 == kCommandTag) {
    eventfd_t ignored = 0;
    ::eventfd_read(command_event.get(), &ignored);
    return;
  }
  if (event.data.u64 == kPrintTag) {
    eventfd_t ignored = 0;
    if (::eventfd_read(options.print_request, &ignored) == 0)
      options.print_record();  // otherwise another world of this process has read the request
    return;
  }
  const Rank rank = static_cast<Rank>(event.data.u64 & 0xffffffff);
  const bool process_ended = (event.data.u64 & kProcess) != 0;
  read(rank);  // also if the process has ended: its goodbye may be unread
  Peer& peer = at(rank);
  if (!process_ended || !peer.process.valid()) return;
  unwatch(peer.process.get());
  peer.process.reset();
  broke(rank, "its process ended");
}

void ControlThread::State::read(Rank rank, bool reads_dead) {
  Peer& peer = at(rank);
  std::array<std::byte, 16 * kKiB> bytes;
  for (std::size_t i = 0; peer.socket.valid() && (i < kReadsPerPoll || peer.socket.holds_bytes()); ++i) {
    const iovec part{bytes.data(), bytes.size()};
    const Result<ByteStream::Received> got = peer.socket.receive({&part, 1});
    if (!got.is_ok()) return broke(rank, "control connection: " + got.status().message());
    if (got.value().end) return broke(rank, "its connection closed");
    if (got.value().nbytes == 0) return;
    const Status fed = peer.reader.feed({bytes.data(), got.value().nbytes});
    while (std::optional<ControlMessage> message = peer.reader.next()) {
      // Before the report of a death is processed, reads what the dead rank itself has sent. If
      // that rank was on this host, all of this has already arrived, even if the report is read
      // first.
      const Rank dead = message->type == FrameType::kDead ? message->end.by : -1;
      if (reads_dead && known(dead) && dead != rank) read(dead, false);
      plane.received(rank, *message, now());
    }
    if (!fed.is_ok()) return broke(rank, fed.message());
  }
}

// Reports the peer as lost. If possible, also notifies the peer itself, because it may be alive
// with only this connection broken.
void ControlThread::State::broke(Rank rank, const std::string& why) {
  Peer& peer = at(rank);
  plane.lost(rank, why, now());
  if (peer.socket.valid() && !peer.unsent.empty()) (void)send(peer);
  if (peer.socket.valid()) unwatch(peer.socket.fd());
  peer.socket.reset();
  peer.unsent.clear();
}

// Removes `fd` from epoll before it is closed, because a forked child may keep the descriptor open.
void ControlThread::State::unwatch(int fd) { ::epoll_ctl(epoll.get(), EPOLL_CTL_DEL, fd, nullptr); }

void ControlThread::State::take_commands() {
  std::vector<Command> taken;
  {
    const std::lock_guard lock(mutex);
    taken.swap(commands);
    takes_commands = !stopping;
  }
  for (const Command& one : taken) one(plane, now());
}

void ControlThread::State::flush() {
  for (Peer& peer : peers) {
    if (peer.socket.valid() && (!peer.unsent.empty() || peer.socket.unsent())) flush(peer);
  }
  // Broken connections are reported when no send is in progress, because a report itself sends
  // messages.
  for (std::size_t i = 0; i < peers.size(); ++i) {
    if (peers[i].broken.empty()) continue;
    const std::string why = std::exchange(peers[i].broken, {});
    read(static_cast<Rank>(i));  // the peer may have sent a goodbye or a report before
    if (peers[i].socket.valid()) broke(static_cast<Rank>(i), why);
    return flush();
  }
}

void ControlThread::State::flush(Peer& peer) {
  const Rank rank = static_cast<Rank>(&peer - peers.data());
  if (const Status sent = send(peer); !sent.is_ok()) {
    peer.broken = "control connection: " + sent.message();
    peer.unsent.clear();
    return;
  }
  if (peer.unsent.size() > kMostUnsent) {
    peer.broken = "it has not read 1 MiB of control messages";
    return;
  }
  watch_writable(peer, rank, !peer.unsent.empty() || peer.socket.unsent());
}

// Sends as much pending output as the socket takes.
Status ControlThread::State::send(Peer& peer) {
  const iovec part{peer.unsent.data(), peer.unsent.size()};
  std::size_t sent = 0;
  if (!peer.unsent.empty()) {
    PC_ASSIGN_OR_RETURN(sent, peer.socket.send({&part, 1}));
  }
  peer.unsent.erase(peer.unsent.begin(), peer.unsent.begin() + static_cast<std::ptrdiff_t>(sent));
  return peer.socket.flush();
}

void ControlThread::State::watch_writable(Peer& peer, Rank rank, bool wanted) {
  if (peer.watching_writable == wanted) return;
  epoll_event event{};
  event.events = EPOLLIN;
  if (wanted) event.events |= EPOLLOUT;
  event.data.u64 = static_cast<uint64_t>(rank);
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_MOD, peer.socket.fd(), &event) == 0) {
    peer.watching_writable = wanted;
  } else {
    peer.broken = system_error("epoll_ctl for a control connection", errno).message();
  }
}

// Closes the connections, after everything that can be sent without waiting has been sent. Reads
// the pending input first, because unread bytes would reset the connection.
void ControlThread::State::leave() {
  std::array<std::byte, 4096> bytes;
  for (Peer& peer : peers) {
    if (!peer.socket.valid()) continue;
    ::shutdown(peer.socket.fd(), SHUT_WR);
    while (::recv(peer.socket.fd(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
    }
    peer.socket.reset();
  }
}

CallReport ControlThread::State::report(const CallId& call, bool find_where) {
  const std::shared_ptr<ControlledGroup> calls = group(call.group);
  if (calls == nullptr) return {};
  CallReport report = calls->report(call.sequence);
  const bool says_all = report.state != CallReport::State::kNotMade &&
                        (call.is_call() || report.state == CallReport::State::kLeaving);
  if (!find_where || says_all || !options.find_position) return report;
  report.where_follows = true;
  searched.push_back(call);
  if (searched.size() > 1) return report;  // one search answers all calls
  options.find_position([weak = weak_from_this()](const std::string& where) {
    const std::shared_ptr<State> self = weak.lock();
    if (self == nullptr) return;
    self->post([state = self.get(), where](ControlPlane& its_plane, TimePoint at) {
      for (const CallId& each : std::exchange(state->searched, {})) its_plane.located(each, where, at);
    });
  });
  return report;
}

template <class Notify>
void ControlThread::State::for_each_group(Notify&& notify) {
  std::vector<std::shared_ptr<ControlledGroup>> all;
  {
    const std::lock_guard lock(mutex);
    for (const auto& [id, calls] : groups) all.push_back(calls);
  }
  for (const std::shared_ptr<ControlledGroup>& calls : all) notify(*calls);
}

void ControlThread::State::ended(Rank peer, const Status& why) {
  {
    const std::lock_guard lock(mutex);
    ended_peers.emplace(peer, why);
  }
  for_each_group([&](ControlledGroup& calls) { calls.peer_ended(peer, why); });
}

ControlThread::ControlThread() = default;

Result<std::unique_ptr<ControlThread>> ControlThread::create(ControlOptions options) {
  std::unique_ptr<ControlThread> control(new ControlThread());
  control->state_ = std::make_shared<State>(std::move(options));
  PC_TRY(control->state_->open());
  return control;
}

Status ControlThread::start() {
  State& state = *state_;
  return start_thread(state.thread, "pc-control", "starting the control thread", [&state] { state.run(); });
}

void ControlThread::stop() {
  State& state = *state_;
  if (!state.thread.joinable()) return;
  state.post([&state](ControlPlane&, TimePoint) { state.stopping = true; });
  state.thread.join();
}

void ControlThread::add(uint32_t id, std::shared_ptr<ControlledGroup> calls) {
  State& state = *state_;
  {
    const std::lock_guard lock(state.mutex);
    state.groups[id] = calls;
  }
  state.post([&state, calls](ControlPlane&, TimePoint) {
    std::map<Rank, Status> ended;
    {
      const std::lock_guard lock(state.mutex);
      ended = state.ended_peers;
    }
    for (const auto& [peer, why] : ended) calls->peer_ended(peer, why);
  });
}

// The removal is a command, so it runs after this rank's pending reports on the group. The other
// members must receive these.
void ControlThread::remove(uint32_t id) {
  const auto forget = [state = state_.get(), id](ControlPlane&, TimePoint) {
    std::shared_ptr<ControlledGroup> last;  // declared before the lock: destroyed after unlock
    const std::lock_guard lock(state->mutex);
    if (const auto found = state->groups.find(id); found != state->groups.end()) {
      last = std::move(found->second);
      state->groups.erase(found);
    }
  };
  if (!state_->post(forget)) forget(state_->plane, now());
}

void ControlThread::gave_up(const CallId& call, const CallEnd& why) {
  state_->post([call, why](ControlPlane& plane, TimePoint at) { plane.gave_up(call, why, at); });
}
void ControlThread::stalled(const CallId& call, Rank waits_for) {
  state_->post([call, waits_for](ControlPlane& plane, TimePoint at) { plane.stalled(call, waits_for, at); });
}
void ControlThread::entered_late(const CallId& call) {
  state_->post([call](ControlPlane& plane, TimePoint at) { plane.entered_late(call, at); });
}
void ControlThread::survey(const CallId& call) {
  state_->post([call](ControlPlane& plane, TimePoint at) { plane.survey(call, at); });
}
void ControlThread::lost(Rank peer, const std::string& cause) {
  state_->post([state = state_.get(), peer, cause](ControlPlane&, TimePoint) {
    if (!state->known(peer)) return;
    state->read(peer);  // first reads what the peer sent before
    state->broke(peer, cause);
  });
}
void ControlThread::send_goodbye() {
  state_->post([](ControlPlane& plane, TimePoint at) { plane.send_goodbye(at); });
}

void ControlThread::close_in_child() noexcept {
  State& state = *state_;
  for (State::Peer& peer : state.peers) {
    peer.socket.reset();
    peer.process.reset();
  }
  state.epoll.reset();
  state.command_event.reset();
}

}  // namespace pc
