#include "store/tcp_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <thread>
#include <unordered_map>

#include "base/fd.h"
#include "store/endpoint.h"
#include "store/protocol.h"
#include "store/table.h"

namespace pc {
namespace {

constexpr int kBacklog = 512;
constexpr std::size_t kReadBytes = 64 * 1024;  // a request's memory grows by this, with what has arrived

// One request being read or answered. Exists only for those who have proved to belong to the job.
struct Exchange {
  StoreHeader header;
  std::size_t header_have = 0;
  StoreRequest request;
  std::string body;    // key and value, as far as they have arrived
  std::string answer;  // not empty: being written
  std::size_t written = 0;
  bool waits = false;  // its get has no answer yet
  bool busy() const { return waits || !answer.empty(); }
};

// What a stranger costs us.
struct Connection {
  Fd fd;
  TimePoint hello_by;
  HelloBytes hello = {};
  std::size_t hello_have = 0;
  std::unique_ptr<Exchange> exchange;  // once greeted
};
static_assert(sizeof(Connection) <= 256);

bool would_block() { return errno == EAGAIN || errno == EINTR; }

Result<Fd> listen_on(const Endpoint& endpoint) {
  Fd fd(::socket(endpoint.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return system_error("socket for the store", errno);
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd.get(), endpoint.get(), endpoint.length) != 0)
    return system_error("the store cannot listen on " + to_string(endpoint) +
                            " (is another rank 0, or another job, using this address?)",
                        errno);
  if (::listen(fd.get(), kBacklog) != 0) return system_error("listen " + to_string(endpoint), errno);
  return fd;
}

bool is_wildcard(const Endpoint& endpoint) {
  if (endpoint.storage.ss_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in&>(endpoint.storage).sin_addr.s_addr == INADDR_ANY;
  }
  const in6_addr& ip = reinterpret_cast<const sockaddr_in6&>(endpoint.storage).sin6_addr;
  return IN6_IS_ADDR_UNSPECIFIED(&ip) || (IN6_IS_ADDR_V4MAPPED(&ip) && ip.s6_addr32[3] == INADDR_ANY);
}

}  // namespace

struct TcpStoreServer::State {
  State(const JobId& job_, const StoreServerLimits& limits_) : job(job_), limits(limits_), table(limits_) {}

  Status open(const std::vector<Endpoint>& endpoints);
  void serve();

  // What follows runs in the server's thread.
  void accept_all();
  void add(Fd fd);
  void drop(int fd);
  bool drop_oldest_stranger();
  void drop_late_strangers(TimePoint now);
  int next_look_ms(TimePoint now) const;
  void on_event(int fd, uint32_t events);
  bool read_hello(Connection& c);
  bool read_request(Connection& c);
  bool answer(Connection& c);  // as far as the socket takes it; each of these: false, drop the connection
  void run(int fd, Exchange& exchange);
  void watch(int fd, uint32_t events) const;

  const JobId job;
  const StoreServerLimits limits;
  std::string address;
  Fd listener, epoll, stop;
  bool listening = true;  // false: out of descriptors, until a connection goes
  StoreTable table;
  std::unordered_map<int, std::unique_ptr<Connection>> connections;
  std::size_t strangers = 0;
  std::thread thread;
};

Status TcpStoreServer::State::open(const std::vector<Endpoint>& endpoints) {
  Status failed(Code::kInvalidArgument, "the store's address is empty");
  for (const Endpoint& endpoint : endpoints) {
    if (is_wildcard(endpoint)) {
      return Status(Code::kInvalidArgument, "the store binds an exact address, not " + to_string(endpoint) +
                                                "; give 127.0.0.1 or the address that the other hosts use");
    }
    Result<Fd> bound = listen_on(endpoint);
    failed = bound.status();
    if (!bound.is_ok()) continue;
    listener = std::move(bound).value();
    Endpoint really;
    really.length = sizeof really.storage;
    if (::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&really.storage), &really.length) != 0) {
      return system_error("getsockname for the store", errno);
    }
    address = to_string(really);
    break;
  }
  PC_TRY(failed);
  epoll.reset(::epoll_create1(EPOLL_CLOEXEC));
  stop.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll.valid() || !stop.valid()) return system_error("epoll or eventfd for the store", errno);
  for (const int fd : {listener.get(), stop.get()}) {
    epoll_event event{EPOLLIN, {.fd = fd}};
    if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) != 0)
      return system_error("epoll_ctl for the store", errno);
  }
  try {
    thread = std::thread([this] { serve(); });
  } catch (const std::system_error& error) {  // how the library says that the system has no more threads
    return system_error("start the store's thread", error.code().value());
  }
  return Status::ok();
}

void TcpStoreServer::State::serve() {
  ::pthread_setname_np(::pthread_self(), "pc-store");  // what top -H and gdb show
  for (;;) {
    std::array<epoll_event, 64> events;
    const int n = ::epoll_wait(epoll.get(), events.data(), static_cast<int>(events.size()),
                               next_look_ms(std::chrono::steady_clock::now()));
    for (int i = 0; i < n; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      if (event.data.fd == stop.get()) return;
      if (event.data.fd == listener.get()) {
        accept_all();
      } else {
        on_event(event.data.fd, event.events);
      }
    }
    if (strangers > 0) drop_late_strangers(std::chrono::steady_clock::now());
  }
}

int TcpStoreServer::State::next_look_ms(TimePoint now) const {
  if (strangers == 0) return -1;
  TimePoint first = TimePoint::max();
  for (const auto& [fd, c] : connections) {
    if (!c->exchange) first = std::min(first, c->hello_by);
  }
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(first - now).count();
  return static_cast<int>(std::max<int64_t>(left, 0)) + 1;
}

void TcpStoreServer::State::accept_all() {
  for (;;) {
    Fd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid()) {
      const bool exhausted = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      if (exhausted && !drop_oldest_stranger()) {  // else epoll would report the waiting connection for ever
        ::epoll_ctl(epoll.get(), EPOLL_CTL_DEL, listener.get(), nullptr);
        listening = false;
      }
      return;
    }
    if (strangers < limits.strangers || drop_oldest_stranger()) add(std::move(fd));
  }
}

void TcpStoreServer::State::add(Fd fd) {
  const int number = fd.get();
  const int on = 1;
  ::setsockopt(number, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(number, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  epoll_event event{EPOLLIN, {.fd = number}};
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, number, &event) != 0) return;  // closes it
  auto connection = std::make_unique<Connection>();
  connection->fd = std::move(fd);
  connection->hello_by = Deadline::after(limits.hello_s).when();
  connections.emplace(number, std::move(connection));
  ++strangers;
}

void TcpStoreServer::State::drop(int fd) {
  const auto at = connections.find(fd);
  if (at == connections.end()) return;
  if (!at->second->exchange) --strangers;
  if (at->second->exchange && at->second->exchange->waits) table.forget(fd);
  connections.erase(at);  // closing takes it out of epoll
  if (listening) return;
  epoll_event event{EPOLLIN, {.fd = listener.get()}};
  listening = ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, listener.get(), &event) == 0;
}

bool TcpStoreServer::State::drop_oldest_stranger() {
  int oldest = -1;
  TimePoint first = TimePoint::max();
  for (const auto& [fd, c] : connections) {
    if (c->exchange || c->hello_by >= first) continue;
    first = c->hello_by;
    oldest = fd;
  }
  drop(oldest);
  return oldest >= 0;
}

void TcpStoreServer::State::drop_late_strangers(TimePoint now) {
  std::vector<int> late;
  for (const auto& [fd, c] : connections) {
    if (!c->exchange && c->hello_by <= now) late.push_back(fd);
  }
  for (const int fd : late) drop(fd);
}

void TcpStoreServer::State::on_event(int fd, uint32_t events) {
  const auto at = connections.find(fd);
  if (at == connections.end()) return;  // dropped earlier in this round
  Connection& c = *at->second;
  bool keep = true;
  if (c.exchange && (events & EPOLLOUT) != 0) keep = answer(c);
  if (keep && (events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0)
    keep = c.exchange ? read_request(c) : read_hello(c);
  if (!keep) drop(fd);
}

bool TcpStoreServer::State::read_hello(Connection& c) {
  const ssize_t n = ::recv(c.fd.get(), c.hello.data() + c.hello_have, c.hello.size() - c.hello_have, 0);
  if (n <= 0) return n < 0 && would_block();
  c.hello_have += static_cast<std::size_t>(n);
  if (c.hello_have < c.hello.size()) return true;
  const Result<Hello> theirs = decode_hello(c.hello);
  if (!theirs.is_ok() || theirs.value().job != job) return false;  // the id is all that members have to show
  Hello ours;
  ours.role = Role::kStore;
  ours.job = job;
  ours.epoch = theirs.value().epoch;  // a store outlives epochs
  HelloBytes bytes;
  encode(ours, bytes);  // also if the role is wrong, so that it can tell its user
  const bool sent =
      ::send(c.fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  if (!sent || !compatible(ours, theirs.value()).is_ok()) return false;
  c.exchange = std::make_unique<Exchange>();
  --strangers;
  return true;
}

bool TcpStoreServer::State::read_request(Connection& c) {
  Exchange& e = *c.exchange;
  const int fd = c.fd.get();
  if (e.header_have < e.header.size()) {
    // Also while its last request is unanswered: then anything but silence, and the end above all, ends it.
    const ssize_t n = ::recv(fd, e.header.data() + e.header_have, e.header.size() - e.header_have, 0);
    if (n <= 0) return n < 0 && would_block();
    if (e.busy()) return false;
    e.header_have += static_cast<std::size_t>(n);
    if (e.header_have < e.header.size()) return true;
    const Result<StoreRequest> request = decode_request(e.header);
    if (!request.is_ok()) return false;
    e.request = request.value();
  }
  while (e.body.size() < e.request.body_nbytes()) {
    std::array<char, kReadBytes> piece;
    const std::size_t want = std::min(piece.size(), e.request.body_nbytes() - e.body.size());
    const ssize_t n = ::recv(fd, piece.data(), want, 0);
    if (n <= 0) return n < 0 && would_block();
    e.body.append(piece.data(), static_cast<std::size_t>(n));
  }
  run(fd, e);
  return connections.contains(fd);
}

void TcpStoreServer::State::run(int fd, Exchange& exchange) {
  const std::string body = std::move(exchange.body);
  const std::string_view all = body;
  const std::size_t key_nbytes = exchange.request.key_nbytes;
  exchange.body = {};
  exchange.header_have = 0;
  exchange.waits = true;
  for (StoreTable::Answer& each :
       table.handle(fd, exchange.request, all.substr(0, key_nbytes), all.substr(key_nbytes))) {
    const auto at = connections.find(each.client);
    if (at == connections.end()) continue;
    Exchange& answered = *at->second->exchange;
    answered.waits = false;
    answered.answer = std::move(each.bytes);
    answered.written = 0;
    if (!answer(*at->second)) drop(each.client);
  }
}

bool TcpStoreServer::State::answer(Connection& c) {
  Exchange& e = *c.exchange;
  while (e.written < e.answer.size()) {
    const ssize_t n =
        ::send(c.fd.get(), e.answer.data() + e.written, e.answer.size() - e.written, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EAGAIN) return false;
    if (n < 0) {
      watch(c.fd.get(), EPOLLIN | EPOLLOUT);
      return true;
    }
    e.written += static_cast<std::size_t>(n);
  }
  watch(c.fd.get(), EPOLLIN);
  e.answer = {};
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

const std::string& TcpStoreServer::address() const { return state_->address; }

Result<std::unique_ptr<TcpStoreServer>> TcpStoreServer::open(const std::string& host, int port,
                                                             const JobId& job,
                                                             const StoreServerLimits& limits) {
  if (port < 0 || port > 65535) {
    return Status(Code::kInvalidArgument,
                  "port " + std::to_string(port) + " for the store: 0 to 65535 are allowed");
  }
  PC_ASSIGN_OR_RETURN(const std::vector<Endpoint> endpoints, resolve(host, std::to_string(port)));
  auto state = std::make_unique<State>(job, limits);
  PC_TRY(state->open(endpoints));
  return std::unique_ptr<TcpStoreServer>(new TcpStoreServer(std::move(state)));
}

Result<std::unique_ptr<TcpStoreServer>> TcpStoreServer::open(const std::string& address, const JobId& job,
                                                             const StoreServerLimits& limits) {
  PC_ASSIGN_OR_RETURN(const std::vector<Endpoint> endpoints, resolve(address));
  auto state = std::make_unique<State>(job, limits);
  PC_TRY(state->open(endpoints));
  return std::unique_ptr<TcpStoreServer>(new TcpStoreServer(std::move(state)));
}

}  // namespace pc
