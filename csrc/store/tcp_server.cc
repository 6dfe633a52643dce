#include "store/tcp_server.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <optional>
#include <thread>
#include <unordered_map>

#include "base/fd.h"
#include "base/refusals.h"
#include "base/start_thread.h"
#include "net/greeting.h"
#include "net/socket.h"
#include "store/protocol.h"
#include "store/table.h"
#include "wire/handshake_limiter.h"

namespace pc {
namespace {

constexpr int kBacklog = 4096;  // the kernel caps it at its somaxconn
constexpr int kAcceptsPerPoll = 32;
constexpr int kDeafMs = 100;                     // pause before listening again after the descriptors ran out
constexpr std::size_t kReadBytes = 64UL * 1024;  // a request's memory grows by this much as bytes arrive

std::size_t pending_allowed(std::size_t limit) {
  rlimit descriptors = {};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) != 0) return limit;
  return std::clamp<std::size_t>(descriptors.rlim_cur / 4, 1, limit);
}

// Returns the number of received bytes, which is 0 if there are none now, or nullopt if the
// connection is unusable.
std::optional<std::size_t> receive(ByteStream& stream, char* to, std::size_t nbytes) {
  const iovec part{to, nbytes};
  const Result<ByteStream::Received> got = stream.receive({&part, 1});
  if (!got.is_ok() || got.value().end) return std::nullopt;
  return got.value().nbytes;
}

}  // namespace

struct TcpStoreServer::State {
  // One request that is being read or answered. Exists only for a client that has proved to belong
  // to the job.
  struct Exchange {
    StoreHeader header;
    std::size_t header_have = 0;
    StoreRequest request;
    std::string body;                           // key and value, as far as they have arrived
    std::shared_ptr<const std::string> answer;  // not null while it is being written
    std::size_t written = 0;
    bool waits = false;  // a get, pop or wait that has no answer yet
    bool busy() const { return waits || answer; }
  };

  struct Connection {
    // Null after authentication. A connection that has not authenticated costs no other memory.
    std::unique_ptr<Greeting> greeting;
    // Set after authentication:
    ByteStream stream;
    std::unique_ptr<Exchange> exchange;
  };

  State(const Credentials& credentials_, const StoreServerLimits& limits_, const Logger& log, uint32_t epoch_)
      : credentials(credentials_),
        epoch(epoch_),
        limits(limits_),
        limiter(pending_allowed(limits_.pending), limits_.handshake_s),
        refusals(log),
        table(limits_.values) {}

  Status open(const std::vector<std::string>& wanted);
  void serve();

  // The following functions run in the server's thread. A function that takes a Connection and
  // returns bool returns false if the connection must be dropped.
  void accept_some(int listener);
  void add(Fd fd);
  void drop(int fd);
  int next_look_ms(TimePoint now) const;
  void on_event(int fd, uint32_t events);
  bool shake_hands(Connection& c);
  bool read_request(Connection& c);
  bool read_some(Connection& c);
  bool answer(Connection& c);  // writes as much of the answer as the socket accepts
  bool run(Connection& c);
  void watch(int fd, uint32_t events) const;

  bool listen(bool on);

  const Credentials credentials;
  const uint32_t epoch;
  const StoreServerLimits limits;
  std::vector<std::string> addresses;
  std::vector<Fd> listeners;
  Fd epoll, stop;
  bool listening = true;     // false while the process is out of descriptors
  HandshakeLimiter limiter;  // connections that have not authenticated, by descriptor
  Refusals refusals;
  StoreTable table;
  std::unordered_map<int, std::unique_ptr<Connection>> connections;
  std::thread thread;
};

Status TcpStoreServer::State::open(const std::vector<std::string>& wanted) {
  if (wanted.empty()) return Status(Code::kInvalidArgument, "the store was given no address to listen on");
  for (const std::string& each : wanted) {
    PC_ASSIGN_OR_RETURN(const SocketAddress address, parse_endpoint(each));
    PC_ASSIGN_OR_RETURN(Fd listener, new_socket(address));
    const Status bound = pc::listen_on(listener, address, kBacklog);
    if (!bound.is_ok()) {
      const bool taken = bound.message().find("EADDRINUSE") != std::string::npos;
      const bool foreign = bound.message().find("EADDRNOTAVAIL") != std::string::npos;
      return Status(bound.code(),
                    "the store cannot listen: " + bound.message() +
                        (taken     ? "; is another rank 0, or another job, using this address?"
                         : foreign ? "; this host does not have that address, and rank 0 must run where it is"
                                   : ""));
    }
    addresses.push_back(to_string(local_address(listener.get())));
    listeners.push_back(std::move(listener));
  }
  epoll.reset(::epoll_create1(EPOLL_CLOEXEC));
  stop.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll.valid() || !stop.valid()) return system_error("epoll or eventfd for the store", errno);
  epoll_event event{EPOLLIN, {.fd = stop.get()}};
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, stop.get(), &event) != 0 || !listen(true))
    return system_error("epoll_ctl for the store", errno);
  return start_thread(thread, "pc-store", "start the store's thread", [this] { serve(); });
}

void TcpStoreServer::State::serve() {
  for (;;) {
    std::array<epoll_event, 64> events;
    const int n =
        ::epoll_wait(epoll.get(), events.data(), static_cast<int>(events.size()), next_look_ms(now()));
    for (int i = 0; i < n; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      if (event.data.fd == stop.get()) return;
      const int fd = event.data.fd;
      if (std::any_of(listeners.begin(), listeners.end(), [fd](const Fd& l) { return l.get() == fd; })) {
        accept_some(fd);
      } else {
        on_event(fd, event.events);
      }
    }
    if (!listening) listen(true);
    for (const int late : limiter.expired(now())) drop(late);
  }
}

int TcpStoreServer::State::next_look_ms(TimePoint now) const {
  if (!listening) return kDeafMs;
  if (limiter.count() == 0) return -1;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(limiter.next() - now).count();
  return static_cast<int>(std::max<int64_t>(left, 0)) + 1;
}

bool TcpStoreServer::State::listen(bool on) {
  bool all = true;
  for (const Fd& listener : listeners) {
    epoll_event event{EPOLLIN, {.fd = listener.get()}};
    all = ::epoll_ctl(epoll.get(), on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, listener.get(), &event) == 0 && all;
  }
  listening = on;
  return all;
}

void TcpStoreServer::State::accept_some(int listener) {
  // Accepts only some of the waiting connections, so that those already accepted can send their
  // handshakes before the limiter is full and evicts the oldest.
  for (int i = 0; i < kAcceptsPerPoll; ++i) {
    Result<Fd> fd = accept_one(listener);
    // The process is out of descriptors. Evicts a connection that has not authenticated, or else
    // stops listening, because epoll would report the waiting connection again and again.
    if (!fd.is_ok()) {
      const int evicted = limiter.evict();
      if (evicted >= 0) {
        drop(evicted);
      } else {
        listen(false);
      }
      return;
    }
    if (!fd.value().valid()) return;
    add(std::move(fd).value());
  }
}

void TcpStoreServer::State::add(Fd fd) {
  const int number = fd.get();
  expect_answers(number);
  epoll_event event{EPOLLIN, {.fd = number}};
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, number, &event) != 0) return;  // destroying `fd` closes it
  Result<Handshake> handshake = Handshake::acceptor(credentials, Hello{.role = Role::kStore, .epoch = epoch});
  if (!handshake.is_ok()) return;
  const int evicted = limiter.enter(number, host_bytes(peer_address(number)), now());
  if (evicted >= 0) drop(evicted);
  auto connection = std::make_unique<Connection>();
  connection->greeting = std::make_unique<Greeting>(std::move(fd), std::move(handshake).value());
  connections.emplace(number, std::move(connection));
}

void TcpStoreServer::State::drop(int fd) {
  const auto at = connections.find(fd);
  if (at == connections.end()) return;
  limiter.leave(fd);
  if (at->second->exchange && at->second->exchange->waits) table.forget(fd);
  // Closing is not enough if a forked child holds a copy of the descriptor.
  ::epoll_ctl(epoll.get(), EPOLL_CTL_DEL, fd, nullptr);
  ::shutdown(fd, SHUT_RDWR);
  connections.erase(at);
  if (!listening) listen(true);
}

void TcpStoreServer::State::on_event(int fd, uint32_t events) {
  const auto at = connections.find(fd);
  if (at == connections.end()) return;  // dropped earlier in this batch of events
  Connection& c = *at->second;
  bool keep = true;
  if (c.exchange && c.exchange->answer && (events & EPOLLOUT) != 0) keep = answer(c);
  if (keep && (events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0)
    keep = c.exchange ? read_request(c) : shake_hands(c);
  if (!keep) drop(fd);
}

bool TcpStoreServer::State::shake_hands(Connection& c) {
  Greeting& greeting = *c.greeting;
  const int fd = greeting.fd();
  if (const Status status = greeting.move(); !status.is_ok()) {
    const Handshake& handshake = greeting.handshake();
    const bool in_another_world = handshake.has_theirs() && handshake.theirs().job == credentials.job &&
                                  epoch != kEveryEpoch && handshake.theirs().epoch != epoch;
    if (in_another_world) refusals.add_expected(to_string(peer_address(fd)), status.message());
    // a mere probe for an open port sends nothing and is not worth a warning
    else if (handshake.has_received())
      refusals.add(to_string(peer_address(fd)), status.message());
    return false;
  }
  if (greeting.handshake().must_decide() && !greeting.decide(Decision::kWelcome).is_ok()) return false;
  if (!greeting.handshake().done()) return true;
  limiter.leave(fd);
  c.stream = greeting.finish();
  c.greeting.reset();
  c.exchange = std::make_unique<Exchange>();
  return true;
}

bool TcpStoreServer::State::read_request(Connection& c) {
  do {
    if (!read_some(c)) return false;
  } while (c.stream.holds_bytes());
  return true;
}

bool TcpStoreServer::State::read_some(Connection& c) {
  Exchange& e = *c.exchange;
  if (e.header_have < e.header.size()) {
    // Reads even while the last request is unanswered, in order to detect that the client has
    // closed the connection. Any byte that arrives then violates the protocol and drops the
    // connection as well.
    const auto n = receive(c.stream, e.header.data() + e.header_have, e.header.size() - e.header_have);
    if (!n || (*n > 0 && e.busy())) return false;
    e.header_have += *n;
    if (e.header_have < e.header.size()) return true;
    const Result<StoreRequest> request = decode_request(e.header);
    if (!request.is_ok()) return false;
    e.request = request.value();
  }
  while (e.body.size() < e.request.body_nbytes()) {
    std::array<char, kReadBytes> piece;
    const auto n =
        receive(c.stream, piece.data(), std::min(piece.size(), e.request.body_nbytes() - e.body.size()));
    if (!n || *n == 0) return n.has_value();
    e.body.append(piece.data(), *n);
  }
  return run(c);
}

// Runs the complete request of `c` and answers every client that the request concerns. Returns
// false if `c` itself must be dropped.
bool TcpStoreServer::State::run(Connection& c) {
  Exchange& exchange = *c.exchange;
  const int fd = c.stream.fd();
  const std::string body = std::move(exchange.body);
  const std::string_view all = body;
  const std::size_t key_nbytes = exchange.request.key_nbytes;
  exchange.body = {};
  exchange.header_have = 0;
  exchange.waits = true;
  bool keep = true;
  const StoreRequest& request = exchange.request;
  const StoreCall call{request.op, all.substr(0, key_nbytes), all.substr(key_nbytes), request.number};
  for (StoreTable::Answer& each : table.handle(fd, call)) {
    const auto at = connections.find(each.client);
    if (at == connections.end()) continue;
    Exchange& answered = *at->second->exchange;
    answered.waits = false;
    answered.answer = std::move(each.bytes);
    answered.written = 0;
    if (answer(*at->second)) continue;
    if (each.client == fd) {
      keep = false;  // the caller drops `c`
    } else {
      drop(each.client);
    }
  }
  return keep;
}

bool TcpStoreServer::State::answer(Connection& c) {
  Exchange& e = *c.exchange;
  const std::string& bytes = *e.answer;
  while (e.written < bytes.size()) {
    const iovec part{const_cast<char*>(bytes.data()) + e.written, bytes.size() - e.written};
    const Result<std::size_t> sent = c.stream.send({&part, 1});
    if (!sent.is_ok()) return false;
    if (sent.value() == 0) break;
    e.written += sent.value();
  }
  if (!c.stream.flush().is_ok()) return false;
  if (e.written < bytes.size() || c.stream.unsent()) {
    watch(c.stream.fd(), EPOLLIN | EPOLLOUT);
    return true;
  }
  watch(c.stream.fd(), EPOLLIN);
  e.answer.reset();
  return true;
}

void TcpStoreServer::State::watch(int fd, uint32_t events) const {
  epoll_event event{events, {.fd = fd}};
  ::epoll_ctl(epoll.get(), EPOLL_CTL_MOD, fd, &event);
}

TcpStoreServer::TcpStoreServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

TcpStoreServer::~TcpStoreServer() {
  ::eventfd_write(state_->stop.get(), 1);
  if (state_->thread.joinable()) state_->thread.join();
}

void TcpStoreServer::close_in_child() noexcept {
  state_->connections.clear();
  state_->listeners.clear();
  state_->epoll.reset();
  state_->stop.reset();
}

const std::vector<std::string>& TcpStoreServer::addresses() const { return state_->addresses; }

Result<std::unique_ptr<TcpStoreServer>> TcpStoreServer::open(const std::vector<std::string>& addresses,
                                                             const Credentials& credentials,
                                                             const StoreServerLimits& limits,
                                                             const Logger& log, uint32_t epoch) {
  auto state = std::make_unique<State>(credentials, limits, log, epoch);
  PC_TRY(state->open(addresses));
  return std::unique_ptr<TcpStoreServer>(new TcpStoreServer(std::move(state)));
}

}  // namespace pc
