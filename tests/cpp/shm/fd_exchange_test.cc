// Ranks of one host exchange their descriptors: every rank gets the descriptors of all, and no
// other process gets or provides any.
#include "shm/fd_exchange.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "bytes.h"
#include "descriptors.h"
#include "shm/descriptor_message.h"
#include "shm/fd_exchange_messages.h"
#include "statuses.h"

namespace pc {
namespace {

using testing::has;
using testing::open_descriptors;

constexpr uint32_t kEpoch = 7;
constexpr double kWaitLimitS = 20;
WaitContext wait_limit(double seconds = kWaitLimitS) { return {Deadline::after(seconds)}; }
std::set<Rank> others(Rank size, Rank self) {
  std::set<Rank> ranks;
  for (Rank rank = 0; rank < size; ++rank) ranks.insert(rank);
  ranks.erase(self);
  return ranks;
}

// Serves until so() is true. Returns false at the deadline.
bool serve_until(FdExchangeServer& server, const std::function<bool()>& so, double seconds = kWaitLimitS) {
  const Deadline deadline = Deadline::after(seconds);
  while (!deadline.expired()) {
    if (so()) return true;
    if (!server.serve(deadline.slice_ms(20)).is_ok()) return false;
  }
  return false;
}

using Outcome = Result<std::unique_ptr<LocalPeers>>;

Outcome lead(const FdExchangeListener& listener, Rank size) {
  PC_ASSIGN_OR_RETURN(SharedPart own, SharedPart::create());
  FdExchangeServer server(listener, kEpoch, others(size, 0));
  if (!serve_until(server, [&] {
        const std::set<Rank> all = others(size, 0);
        return std::all_of(all.begin(), all.end(), [&](Rank rank) { return server.has(rank); });
      }))
    return Status(Code::kTimeout, "not all came");
  PC_ASSIGN_OR_RETURN(const auto failed, server.distribute(0, own, wait_limit()));
  if (!failed.empty()) return Status(Code::kPeerFailure, failed.begin()->second);
  return make_process_local_peers(0, std::move(own), server.take_peers());
}

Outcome connect_client(const FdEndpoint& endpoint, Rank self, Rank size) {
  PC_ASSIGN_OR_RETURN(SharedPart own, SharedPart::create());
  PC_ASSIGN_OR_RETURN(FdExchangeClient client,
                      FdExchangeClient::begin(endpoint, self, kEpoch, own, wait_limit()));
  PC_ASSIGN_OR_RETURN(std::vector<PeerPart> peers, client.receive(others(size, self), wait_limit()));
  return make_process_local_peers(self, std::move(own), std::move(peers));
}

std::vector<Outcome> gather(Rank size) {
  const FdExchangeListener listener = FdExchangeListener::open().value();
  std::vector<Outcome> outcomes;
  for (Rank rank = 0; rank < size; ++rank) outcomes.emplace_back(Status(Code::kInternal, "did not run"));
  std::vector<std::thread> ranks;
  for (Rank rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] {
      outcomes[static_cast<std::size_t>(rank)] =
          rank == 0 ? lead(listener, size) : connect_client(listener.endpoint(), rank, size);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return outcomes;
}

void must_share(const std::vector<Outcome>& outcomes) {
  const Rank size = static_cast<Rank>(outcomes.size());
  for (Rank rank = 0; rank < size; ++rank) {
    const Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
    ASSERT_TRUE(outcome.is_ok()) << rank << ": " << outcome.status().to_string();
    outcome.value()->map(rank, 0, 1).value()[0] = static_cast<std::byte>(100 + rank);
  }
  for (const Outcome& each : outcomes) {
    for (Rank rank = 0; rank < size; ++rank)
      ASSERT_EQ(each.value()->map(rank, 0, 1).value()[0], static_cast<std::byte>(100 + rank));
    EXPECT_FALSE(each.value()->has(size));
  }
}

// Connects to the leader as any local process can.
Fd connect_raw(const FdEndpoint& endpoint) {
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string name = "pycollective/";
  std::copy(name.begin(), name.end(), address.sun_path + 1);
  std::transform(endpoint.name.begin(), endpoint.name.end(), address.sun_path + 1 + name.size(),
                 [](std::byte b) { return static_cast<char>(b); });
  const std::size_t length = offsetof(sockaddr_un, sun_path) + 1 + name.size() + endpoint.name.size();
  const int connected =
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), static_cast<socklen_t>(length));
  return connected == 0 ? std::move(socket) : Fd();
}
bool hung_up(const Fd& socket) {  // waits for it
  timeval limit = {10, 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  char byte = 0;
  const ssize_t count = ::recv(socket.get(), &byte, 1, 0);
  return count == 0 || (count < 0 && errno == ECONNRESET);
}

TEST(FdExchange, every_rank_gets_the_memory_of_all_ranks) {
  for (const Rank size : {2, 3, 5}) must_share(gather(size));
}

// All parts but the last use one descriptor twice: a process may not have as many descriptors as
// that many ranks have.
TEST(FdExchange, more_ranks_than_one_message_has_descriptors_for) {
  constexpr Rank kLast = static_cast<Rank>(2 * kRanksAtOnce + 3);
  const FdExchangeListener listener = FdExchangeListener::open().value();
  const SharedPart part = SharedPart::create().value();
  FdExchangeServer server(listener, kEpoch, others(kLast + 1, 0));
  std::vector<Fd> clients;
  for (Rank rank = 1; rank < kLast; ++rank) {
    clients.push_back(connect_raw(listener.endpoint()));
    const JoinBytes join = encode(JoinMessage{kEpoch, rank, listener.endpoint().token});
    const std::vector<int> both = {part.memory.fd(), part.notifier.fd()};
    ASSERT_TRUE(send_message(clients.back().get(), join, both).value());
    ASSERT_TRUE(send_message(clients.back().get(), encode_answer(""), {}).value()) << "before it is asked";
    ASSERT_TRUE(serve_until(server, [&] { return server.has(rank); }));
  }
  std::thread last([&] {
    const SharedPart own = SharedPart::create().value();
    FdExchangeClient client =
        std::move(FdExchangeClient::begin(listener.endpoint(), kLast, kEpoch, own, wait_limit()).value());
    const Result<std::vector<PeerPart>> all = client.receive(others(kLast + 1, kLast), wait_limit());
    EXPECT_TRUE(all.is_ok()) << all.status().to_string();
    EXPECT_EQ(all.is_ok() ? all.value().size() : 0, static_cast<std::size_t>(kLast));
  });
  ASSERT_TRUE(serve_until(server, [&] { return server.has(kLast); }));
  // No client uses what it receives, so a thread drains the sockets.
  std::atomic<bool> done = false;
  std::thread reads([&] {
    PartsBytes parts;
    while (!done) {
      for (const Fd& each : clients) (void)receive_message(each.get(), parts, 2 * kRanksAtOnce);
    }
  });
  EXPECT_TRUE(server.distribute(0, part, wait_limit()).value().empty());
  done = true;
  last.join();
  reads.join();
  EXPECT_EQ(server.take_peers().size(), static_cast<std::size_t>(kLast));
}

TEST(FdExchange, leaves_no_descriptor_open) {
  const std::ptrdiff_t before = open_descriptors();
  must_share(gather(4));
  EXPECT_EQ(open_descriptors(), before);
}

// Returns how many processes have a file with one of these inodes open or mapped, according to
// /proc.
int holders_of(const std::set<std::string>& inodes) {
  int count = 0;
  std::error_code failed;
  for (const auto& process : std::filesystem::directory_iterator("/proc", failed)) {
    std::ifstream maps(process.path() / "maps");
    bool holds = false;
    for (std::string line; !holds && std::getline(maps, line);) {
      if (line.find("memfd:pycollective") == std::string::npos) continue;
      holds = std::any_of(inodes.begin(), inodes.end(), [&](const std::string& inode) {
        return line.find(" " + inode + " ") != std::string::npos;
      });
    }
    count += holds ? 1 : 0;
  }
  return count;
}

TEST(FdExchange, nothing_is_left_of_the_memory_of_ranks_that_were_all_killed) {
  constexpr Rank kSize = 3;
  const auto in_shm = [] {
    std::error_code failed;
    const std::filesystem::directory_iterator all("/dev/shm", failed);
    return std::count_if(begin(all), end(all), [](const auto& entry) {
      return entry.path().filename().string().find("pycollective") != std::string::npos;
    });
  };
  const auto before = in_shm();
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Fd reads(ends[0]);
  Fd writes(ends[1]);
  std::vector<pid_t> ranks;
  {
    const FdExchangeListener listener = FdExchangeListener::open().value();
    for (Rank rank = 0; rank < kSize; ++rank) {
      const pid_t child = ::fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        const Outcome outcome =
            rank == 0 ? lead(listener, kSize) : connect_client(listener.endpoint(), rank, kSize);
        const bool has_it = outcome.is_ok() && outcome.value()->grow(kMiB).is_ok();
        const char word = has_it ? 'y' : 'n';
        (void)!::write(writes.get(), &word, 1);
        for (;;) ::pause();
      }
      ranks.push_back(child);
    }
  }
  writes.reset();
  for (Rank rank = 0; rank < kSize; ++rank) {
    char word = 0;
    EXPECT_EQ(::read(reads.get(), &word, 1), 1);
    EXPECT_EQ(word, 'y');
  }
  std::set<std::string> inodes;
  for (const pid_t rank : ranks) {
    std::ifstream maps("/proc/" + std::to_string(rank) + "/maps");
    for (std::string line, part; std::getline(maps, line);) {
      if (line.find("memfd:pycollective") == std::string::npos) continue;
      std::istringstream fields(line);  // addresses, permissions, offset, device, inode
      for (int field = 0; field < 5; ++field) fields >> part;
      inodes.insert(part);
    }
  }
  EXPECT_EQ(inodes.size(), static_cast<std::size_t>(kSize));
  EXPECT_EQ(holders_of(inodes), kSize);
  for (const pid_t rank : ranks) ::kill(rank, SIGKILL);
  for (const pid_t rank : ranks) EXPECT_EQ(::waitpid(rank, nullptr, 0), rank);
  EXPECT_EQ(holders_of(inodes), 0);
  EXPECT_EQ(in_shm(), before) << "it has no name";
}

TEST(FdExchange, an_endpoint_survives_the_store_and_anything_else_is_refused) {
  const FdExchangeListener listener = FdExchangeListener::open().value();
  const std::string text = to_text(listener.endpoint());
  const FdEndpoint same = endpoint_from(text).value();
  EXPECT_EQ(same.name, listener.endpoint().name);
  EXPECT_EQ(same.token, listener.endpoint().token);
  for (const std::string& wrong : {std::string(), text + "0", text.substr(1), "g" + text.substr(1)})
    EXPECT_EQ(endpoint_from(wrong).status().code(), Code::kMismatch);
}

class PendingConnection : public ::testing::Test {
 protected:
  FdExchangeListener listener = FdExchangeListener::open().value();
  FdExchangeServer server{listener, kEpoch, {1, 2}};
  SharedPart part = SharedPart::create().value();
  void send(const Fd& socket, const JoinBytes& bytes, std::vector<int> descriptors) const {
    ASSERT_TRUE(send_message(socket.get(), bytes, descriptors).value());
  }
  JoinBytes join(Rank rank) const { return encode(JoinMessage{kEpoch, rank, listener.endpoint().token}); }
  std::vector<int> both() const { return {part.memory.fd(), part.notifier.fd()}; }
  // Checks that the connection that sends this is closed, and that none of its descriptors is kept.
  void must_be_rejected(const JoinBytes& bytes, const std::vector<int>& descriptors) {
    const std::ptrdiff_t before = open_descriptors();
    {
      const Fd socket = connect_raw(listener.endpoint());
      ASSERT_TRUE(socket.valid());
      send(socket, bytes, descriptors);
      ASSERT_TRUE(server.serve(1000).is_ok());
      EXPECT_TRUE(hung_up(socket));
    }
    EXPECT_FALSE(server.has(1) || server.has(2));
    EXPECT_EQ(open_descriptors(), before);
  }
};

TEST_F(PendingConnection, is_admitted_after_a_valid_join_message) {
  const Fd socket = connect_raw(listener.endpoint());
  send(socket, join(1), both());
  EXPECT_TRUE(serve_until(server, [&] { return server.has(1); }));
}

TEST_F(PendingConnection, is_rejected_without_the_right_token) {
  JoinMessage word{kEpoch, 1, listener.endpoint().token};
  word.token[15] ^= std::byte{1};
  must_be_rejected(encode(word), both());
  must_be_rejected(JoinBytes{}, both());
}

TEST_F(PendingConnection, is_rejected_for_another_epoch_or_an_unexpected_rank) {
  must_be_rejected(encode(JoinMessage{kEpoch + 1, 1, listener.endpoint().token}), both());
  for (const Rank rank : {0, 3, -1, INT32_MAX}) must_be_rejected(join(rank), both());
}

TEST_F(PendingConnection, is_rejected_for_too_few_or_too_many_descriptors) {
  must_be_rejected(join(1), {});
  must_be_rejected(join(1), {part.memory.fd()});
  must_be_rejected(join(1), {part.memory.fd(), part.notifier.fd(), part.notifier.fd()});
  must_be_rejected(join(1), std::vector<int>(200, part.notifier.fd()));
}

TEST_F(PendingConnection, is_rejected_for_messages_of_another_size) {
  const std::ptrdiff_t before = open_descriptors();
  for (const std::size_t size : {std::size_t{1}, kJoinBytes - 1, kJoinBytes + 1, std::size_t{60000}}) {
    const Fd socket = connect_raw(listener.endpoint());
    std::vector<std::byte> bytes(size);
    const JoinBytes good = join(1);
    std::copy_n(good.begin(), std::min(size, good.size()), bytes.begin());
    ASSERT_TRUE(send_message(socket.get(), bytes, both()).value());
    ASSERT_TRUE(server.serve(1000).is_ok());
    EXPECT_TRUE(hung_up(socket));
  }
  EXPECT_FALSE(server.has(1));
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(PendingConnection, memory_that_may_shrink_is_refused_and_the_reason_is_known) {
  const Fd unsealed(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  must_be_rejected(join(1), {unsealed.get(), part.notifier.fd()});
  EXPECT_NE(server.refusal_of(1).find("sealed"), std::string::npos);
  must_be_rejected(join(2), {part.memory.fd(), part.memory.fd()});
  EXPECT_NE(server.refusal_of(2).find("notifier"), std::string::npos);
}

TEST_F(PendingConnection, a_rank_that_is_here_is_not_replaced) {
  const Fd first = connect_raw(listener.endpoint());
  send(first, join(1), both());
  ASSERT_TRUE(serve_until(server, [&] { return server.has(1); }));
  const Fd twin = connect_raw(listener.endpoint());
  send(twin, join(1), both());
  ASSERT_TRUE(server.serve(1000).is_ok());
  EXPECT_TRUE(hung_up(twin));
  char byte = 0;
  EXPECT_EQ(::recv(first.get(), &byte, 1, MSG_DONTWAIT), -1) << "the first connection was closed";
}

TEST_F(PendingConnection, pending_connections_that_send_nothing_delay_no_client_and_are_closed) {
  std::vector<Fd> silent;
  for (int i = 0; i < 10; ++i) silent.push_back(connect_raw(listener.endpoint()));
  const Fd client = connect_raw(listener.endpoint());
  send(client, join(1), both());
  const TimePoint began = std::chrono::steady_clock::now();
  EXPECT_TRUE(serve_until(server, [&] { return server.has(1); }));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(2));
  const auto gone = [&] {
    return std::all_of(silent.begin(), silent.end(), [](const Fd& socket) {
      char byte = 0;
      return ::recv(socket.get(), &byte, 1, MSG_DONTWAIT) == 0;
    });
  };
  EXPECT_TRUE(serve_until(server, gone, 10));
  EXPECT_TRUE(server.has(1));
}

TEST_F(PendingConnection, more_pending_connections_than_are_allowed_push_out_each_other_and_no_client) {
  std::vector<Fd> silent;
  for (int i = 0; i < 200; ++i) {
    silent.push_back(connect_raw(listener.endpoint()));
    ASSERT_TRUE(server.serve(1000).is_ok());
  }
  EXPECT_TRUE(hung_up(silent.front()));
  const Fd client = connect_raw(listener.endpoint());
  send(client, join(2), both());
  EXPECT_TRUE(serve_until(server, [&] { return server.has(2); }));
}

TEST_F(PendingConnection, another_user_is_rejected_although_it_knows_the_token) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const JoinBytes bytes = join(1);
  const std::vector<int> descriptors = both();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (::setresuid(65534, 65534, 65534) != 0) ::_exit(2);
    const Fd socket = connect_raw(listener.endpoint());
    if (!socket.valid()) ::_exit(3);
    (void)send_message(socket.get(), bytes, descriptors);
    ::_exit(hung_up(socket) ? 0 : 1);
  }
  int status = -1;
  EXPECT_TRUE(serve_until(server, [&] { return ::waitpid(child, &status, WNOHANG) == child; }));
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(server.has(1));
}

TEST_F(PendingConnection, a_client_lost_during_distribution_is_named_and_the_others_get_theirs) {
  Fd leaves = connect_raw(listener.endpoint());
  send(leaves, join(1), both());
  std::thread stays([&] {
    const SharedPart own = SharedPart::create().value();
    FdExchangeClient client =
        std::move(FdExchangeClient::begin(listener.endpoint(), 2, kEpoch, own, wait_limit()).value());
    EXPECT_EQ(client.receive({0, 1}, wait_limit()).value().size(), 2u);
  });
  ASSERT_TRUE(serve_until(server, [&] { return server.has(1) && server.has(2); }));
  leaves.reset();
  const auto failed = server.distribute(0, part, wait_limit()).value();
  stays.join();
  EXPECT_EQ(failed.size(), 1u);
  EXPECT_TRUE(failed.contains(1));
  EXPECT_EQ(server.take_peers().size(), 1u);
}

TEST_F(PendingConnection, a_client_that_does_not_answer_is_a_timeout_that_names_it) {
  const Fd silent = connect_raw(listener.endpoint());
  send(silent, join(1), both());
  ASSERT_TRUE(serve_until(server, [&] { return server.has(1); }));
  const Status status = server.distribute(0, part, wait_limit(0.05)).status();
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_EQ(status.peer(), 1);
}

TEST_F(PendingConnection, an_abort_or_an_interrupt_ends_handing_round) {
  const Fd silent = connect_raw(listener.endpoint());
  send(silent, join(1), both());
  ASSERT_TRUE(serve_until(server, [&] { return server.has(1); }));
  const std::atomic<uint32_t> aborted = 1;
  const std::function<bool()> interrupted = [] { return true; };
  EXPECT_EQ(server.distribute(0, part, {Deadline::after(kWaitLimitS), &aborted}).status().code(),
            Code::kAborted);
  EXPECT_EQ(server.distribute(0, part, {Deadline::after(kWaitLimitS), nullptr, &interrupted}).status().code(),
            Code::kInterrupted);
}

// The behavior of a rank with a false leader.
class FalseLeader : public ::testing::Test {
 protected:
  FdExchangeListener listener = FdExchangeListener::open().value();
  // Returns the visitor's result after this message.
  Result<std::vector<PeerPart>> after(std::span<const std::byte> bytes, const std::vector<int>& descriptors,
                                      std::string& answer) const {
    const SharedPart own = SharedPart::create().value();
    FdExchangeClient client =
        std::move(FdExchangeClient::begin(listener.endpoint(), 1, kEpoch, own, wait_limit()).value());
    const Fd socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    EXPECT_TRUE(send_message(socket.get(), bytes, descriptors).value());
    Result<std::vector<PeerPart>> got = client.receive({0, 2}, wait_limit());
    JoinBytes joined;
    (void)receive_message(socket.get(), joined, 2);
    AnswerBytes answered = {};
    if (receive_message(socket.get(), answered, 0).is_ok())
      answer = decode_answer(answered).is_ok() ? decode_answer(answered).value() : "";
    return got;
  }
};

TEST_F(FalseLeader, is_not_believed_and_gets_the_reason) {
  const SharedPart part = SharedPart::create().value();
  const std::vector<int> both = {part.memory.fd(), part.notifier.fd()};
  const std::ptrdiff_t before = open_descriptors();
  struct Lie {
    PartsMessage word;
    std::vector<int> descriptors;
  };
  const std::vector<Lie> lies = {
      {{1, {3}}, both},  // a rank of another host
      {{1, {1}}, both},  // the visitor itself
      {{2, {0, 0}}, {both[0], both[1], both[0], both[1]}},
      {{1, {0}}, {both[0]}},
      {{1, {}}, {}},
      {{1, {0}}, {both[1], both[0]}},
      {{1, {0}}, {both[0], both[1], both[0], both[1]}},
  };
  for (const Lie& lie : lies) {
    std::string answer;
    EXPECT_EQ(after(encode(lie.word), lie.descriptors, answer).status().code(), Code::kMismatch);
    EXPECT_NE(answer, "");
    EXPECT_EQ(open_descriptors(), before);
  }
  PartsBytes too_many = encode(PartsMessage{1, {0}});
  too_many[9] = std::byte{1};
  std::string answer;
  EXPECT_EQ(after(too_many, both, answer).status().code(), Code::kMismatch);
  EXPECT_EQ(after(JoinBytes{}, both, answer).status().code(), Code::kMismatch);
}

TEST_F(FalseLeader, that_went_is_not_found) {
  const FdEndpoint gone = FdExchangeListener::open().value().endpoint();
  const SharedPart own = SharedPart::create().value();
  const Status status = FdExchangeClient::begin(gone, 1, kEpoch, own, wait_limit()).status();
  EXPECT_TRUE(has(status, "ECONNREFUSED")) << status.to_string();
  EXPECT_TRUE(has(status, "network namespace")) << status.to_string();
}

TEST_F(FalseLeader, that_never_answers_is_a_timeout) {
  const SharedPart own = SharedPart::create().value();
  FdExchangeClient client =
      std::move(FdExchangeClient::begin(listener.endpoint(), 1, kEpoch, own, wait_limit()).value());
  EXPECT_EQ(client.receive({0}, wait_limit(0.05)).status().code(), Code::kTimeout);
}

TEST(FdExchange, a_rank_that_can_open_no_more_descriptors_says_so) {
  const FdExchangeListener listener = FdExchangeListener::open().value();
  const SharedPart own = SharedPart::create().value();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const SharedPart its = SharedPart::create().value();
    Result<FdExchangeClient> client =
        FdExchangeClient::begin(listener.endpoint(), 1, kEpoch, its, wait_limit());
    // Fails once while descriptors are available: UBSan uses a pipe to check the first object of
    // each class.
    const FdEndpoint gone = FdExchangeListener::open().value().endpoint();
    if (!has(FdExchangeClient::begin(gone, 1, kEpoch, its, wait_limit()).status(), "ECONNREFUSED"))
      ::_exit(2);
    const Fd next(::fcntl(0, F_DUPFD_CLOEXEC, 0));
    const rlimit limit = {static_cast<rlim_t>(next.get() + 1), static_cast<rlim_t>(next.get() + 1)};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    const bool refused =
        client.is_ok() && has(client.value().receive({0}, wait_limit()).status(), "ulimit -n");
    ::_exit(refused ? 0 : 1);
  }
  FdExchangeServer server(listener, kEpoch, {1});
  ASSERT_TRUE(serve_until(server, [&] { return server.has(1); }));
  const auto failed = server.distribute(0, own, wait_limit()).value();
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_TRUE(failed.contains(1));
  EXPECT_NE(failed.at(1).find("ulimit -n"), std::string::npos) << failed.at(1);
}

TEST(FdExchangeMessages, answers_are_one_line_for_any_input) {
  EXPECT_EQ(decode_answer(encode_answer("")).value(), "");
  EXPECT_EQ(decode_answer(encode_answer("a\nb\x80")).value(), "a?b?");
  EXPECT_EQ(decode_answer(encode_answer(std::string(9999, 'x'))).value(),
            std::string(sizeof(AnswerBytes) - 8, 'x'));
  AnswerBytes longer = encode_answer("x");
  longer[5] = std::byte{255};
  EXPECT_EQ(decode_answer(longer).status().code(), Code::kMismatch);
}

}  // namespace
}  // namespace pc
