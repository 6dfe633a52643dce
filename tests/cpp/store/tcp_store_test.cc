// The contract of the TCP store for pending connections, wrong jobs, missing servers and clients
// that disappear.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "conformance/raw_connection.h"
#include "net/greeting.h"
#include "net/socket.h"
#include "store/protocol.h"
#include "store/tcp_client.h"
#include "store/tcp_server.h"

namespace pc {
namespace {

using testing::credentials_of;
using testing::RawConnection;

const Credentials kJob = credentials_of(7);
const Hello kClient{.role = Role::kStore};
const std::vector<std::string> kAnyPort = {"127.0.0.1:0"};
Deadline soon() { return Deadline::after(10); }

class TcpStore : public ::testing::Test {
 protected:
  void serve(const StoreServerLimits& limits = {}) {
    server_ = TcpStoreServer::open(kAnyPort, kJob, limits).value();
  }
  const std::string& address() const { return server_->addresses().front(); }
  std::unique_ptr<Store> client() { return connect_tcp_store({address()}, kJob, soon()).value().store; }
  RawConnection pending_peer() const { return RawConnection(address()); }
  RawConnection member() const {
    RawConnection made(address());
    EXPECT_TRUE(made.shake_hands(kClient, kJob).is_ok());
    return made;
  }
  std::unique_ptr<TcpStoreServer> server_;
};

TEST_F(TcpStore, a_client_may_start_before_the_server) {
  serve();
  const std::string where = address();
  server_.reset();
  std::thread late;
  int looks = 0;  // The probe is called between attempts: by its third call at least one attempt has failed.
  const Result<StoreConnection> store = connect_tcp_store({where}, kJob, soon(), [&] {
    if (++looks == 3) server_ = TcpStoreServer::open({where}, kJob).value();
    return false;
  });
  ASSERT_TRUE(store.is_ok()) << store.status().to_string();
  EXPECT_GE(looks, 3);
}

TEST_F(TcpStore, the_address_that_answers_with_the_right_job_is_taken) {
  serve();
  const std::unique_ptr<TcpStoreServer> other = TcpStoreServer::open(kAnyPort, credentials_of(8)).value();
  const Result<StoreConnection> store =
      connect_tcp_store({other->addresses().front(), address()}, kJob, soon());
  ASSERT_TRUE(store.is_ok()) << store.status().to_string();
  EXPECT_EQ(store.value().store->add("n", 1, soon()).value(), 1);
}

TEST_F(TcpStore, an_unreachable_store_is_a_timeout_that_names_address_attempts_and_cause) {
  serve();
  const std::string where = address();
  server_.reset();
  const Status status = connect_tcp_store({where}, kJob, Deadline::after(0.1)).status();
  EXPECT_EQ(status.code(), Code::kTimeout);
  for (const std::string part : {where.c_str(), "attempt", "refused", "Check that"}) {
    EXPECT_NE(status.message().find(part), std::string::npos) << part << " in: " << status.message();
  }
}

TEST_F(TcpStore, addresses_that_fail_for_the_same_reason_share_a_line) {
  serve();
  const std::string where = address();
  server_.reset();
  const Status status = connect_tcp_store({where, where}, kJob, Deadline::after(0.05)).status();
  EXPECT_NE(status.message().find("at " + where + ", " + where + ": "), std::string::npos)
      << status.message();
}

TEST_F(TcpStore, a_client_of_another_job_is_refused_with_the_reason) {
  serve();
  const Status status = connect_tcp_store({address()}, credentials_of(9), Deadline::after(0.1)).status();
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_NE(status.message().find("belongs to job " + fingerprint(kJob.job)), std::string::npos)
      << status.message();
}

TEST_F(TcpStore, a_rank_that_is_already_in_the_next_world_waits_for_its_store_without_a_warning) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_NONBLOCK), 0);
  const Fd reads(ends[0]), writes(ends[1]);
  const Logger log(LogLevel::kWarning, -1, writes.get());
  const auto serves = [&](const std::string& where, uint32_t epoch) {
    return TcpStoreServer::open({where}, kJob, {}, log, epoch).value();
  };
  server_ = serves("127.0.0.1:0", 0);
  const std::string where = address();
  int looks = 0;  // by its third call the store of world 0 has refused the client
  const auto rank_0_moves_on = [&] {
    if (++looks == 3) {
      server_.reset();
      server_ = serves(where, 1);
    }
    return false;
  };
  const Result<StoreConnection> store = connect_tcp_store({where}, kJob, soon(), rank_0_moves_on, 1);
  ASSERT_TRUE(store.is_ok()) << store.status().to_string();
  EXPECT_GE(looks, 3);
  EXPECT_TRUE(store.value().store->add("n", 1, soon()).is_ok());
  char said;
  EXPECT_EQ(::read(reads.get(), &said, 1), -1) << "there is a warning";
  const Status late = pending_peer().shake_hands({.role = Role::kStore, .epoch = 0}, kJob);
  EXPECT_NE(late.message().find("we of world 0"), std::string::npos) << late.message();
  EXPECT_FALSE(pending_peer().shake_hands({.role = Role::kStore, .epoch = 1}, credentials_of(9)).is_ok());
  server_.reset();  // joins its thread, so that all its warnings have been written
  EXPECT_EQ(::read(reads.get(), &said, 1), 1) << "another job is worth a warning";
}

TEST_F(TcpStore, a_client_of_this_job_with_another_key_is_refused_at_once_with_both_ids_and_its_source) {
  serve();
  const Credentials other = credentials_of(7, 2);
  const Status status = connect_tcp_store({address()}, other, soon()).status();
  EXPECT_EQ(status.code(), Code::kMismatch) << "and no timeout: " << status.to_string();
  for (const std::string& part : {address(), to_string(key_id(kJob.key)), to_string(key_id(other.key)),
                                  other.key_source, std::string("PYCOLLECTIVE_KEY_FILE")}) {
    EXPECT_NE(status.message().find(part), std::string::npos) << part << " in: " << status.message();
  }
}

TEST_F(TcpStore, a_client_learns_which_of_its_addresses_reaches_the_store) {
  serve();
  EXPECT_EQ(connect_tcp_store({address()}, kJob, soon()).value().local_ip, "127.0.0.1");
}

TEST_F(TcpStore, it_listens_on_every_address_that_it_is_given) {
  const std::unique_ptr<TcpStoreServer> both =
      TcpStoreServer::open({"127.0.0.1:0", "127.0.0.2:0"}, kJob).value();
  ASSERT_EQ(both->addresses().size(), 2u);
  for (const std::string& each : both->addresses())
    EXPECT_TRUE(connect_tcp_store({each}, kJob, soon()).is_ok()) << each;
}

TEST_F(TcpStore, an_interrupt_ends_every_wait) {
  serve();
  bool interrupted = false;
  const std::unique_ptr<Store> store =
      connect_tcp_store({address()}, kJob, soon(), [&] { return interrupted; }).value().store;
  interrupted = true;
  EXPECT_EQ(store->get("never", soon()).status().code(), Code::kInterrupted);
}

TEST_F(TcpStore, a_lost_server_is_an_error_and_no_hang) {
  serve();
  const std::unique_ptr<Store> store = client();
  server_.reset();
  const Status status = store->get("a", Deadline::after(1)).status();
  EXPECT_TRUE(status.code() == Code::kPeerFailure || status.code() == Code::kSystem ||
              status.code() == Code::kTimeout)
      << status.to_string();
}

TEST_F(TcpStore, a_lost_store_is_not_reported_as_a_missing_key) {
  serve();
  const std::string where = address();
  const std::unique_ptr<Store> store = client();
  server_.reset();
  // detects the end; from here on every call must connect again
  EXPECT_FALSE(store->get("a", soon()).is_ok());
  for (const Status& status : {store->get("the/key", Deadline::after(0.1)).status(),
                               store->set("the/key", "v", Deadline::after(0.1)),
                               store->add("the/key", 1, Deadline::after(0.1)).status(),
                               store->erase("the/key", Deadline::after(0.1)).status(),
                               store->check("the/key", Deadline::after(0.1)).status(),
                               store->keys("the/key", Deadline::after(0.1)).status()}) {
    EXPECT_EQ(status.code(), Code::kTimeout);
    for (const std::string part : {"the/key", where.c_str(), "refused"}) {
      EXPECT_NE(status.message().find(part), std::string::npos) << part << " in: " << status.message();
    }
    EXPECT_EQ(status.message().find("no rank has set it"), std::string::npos) << status.message();
  }
}

// Accepts one client, and never answers it.
class SilentStore {
 public:
  SilentStore() {
    const SocketAddress anywhere = parse_endpoint("127.0.0.1:0").value();
    listener_ = new_socket(anywhere).value();
    EXPECT_TRUE(listen_on(listener_, anywhere, 4).is_ok());
    thread_ = std::thread([this] { welcome(); });
  }
  ~SilentStore() {
    done_ = true;
    thread_.join();
  }
  SilentStore(const SilentStore&) = delete;
  SilentStore& operator=(const SilentStore&) = delete;
  std::string address() const { return to_string(local_address(listener_.get())); }

 private:
  bool wait_for_bytes(int fd) const {
    while (!done_) {
      pollfd poll_for{fd, POLLIN, 0};
      if (::poll(&poll_for, 1, 20) > 0) return true;
    }
    return false;
  }
  void welcome() {
    if (!wait_for_bytes(listener_.get())) return;
    Greeting greeting(accept_one(listener_.get()).value(),
                      Handshake::acceptor(kJob, Hello{.role = Role::kStore}).value());
    while (!greeting.handshake().done() && wait_for_bytes(greeting.fd())) {
      EXPECT_TRUE(greeting.move().is_ok());
      if (greeting.handshake().must_decide()) {
        EXPECT_TRUE(greeting.decide(Decision::kWelcome).is_ok());
      }
    }
    while (!done_) wait_for_bytes(listener_.get());
  }
  Fd listener_;
  std::atomic<bool> done_{false};
  std::thread thread_;
};

TEST_F(TcpStore, a_store_that_is_stuck_is_not_reported_as_a_missing_key) {
  const SilentStore stuck;
  const std::unique_ptr<Store> store = connect_tcp_store({stuck.address()}, kJob, soon()).value().store;
  const StoreDeadline at_once{Deadline::after(0), 0.1};
  for (const Status& status :
       {store->get("the/key", at_once).status(), store->get("the/key", {Deadline::after(0.3), 0.1}).status(),
        store->try_get("the/key", at_once).status(), store->check("the/key", at_once).status()}) {
    EXPECT_EQ(status.code(), Code::kTimeout);
    EXPECT_NE(status.message().find("the/key"), std::string::npos) << status.message();
    EXPECT_EQ(status.message().find("no rank has set it"), std::string::npos) << status.message();
  }
}

TEST_F(TcpStore, connecting_to_a_stuck_store_ends_at_the_deadline_unless_requested_otherwise) {
  const SilentStore stuck;
  const std::unique_ptr<Store> store = connect_tcp_store({stuck.address()}, kJob, soon()).value().store;
  const TimePoint begin = now();
  EXPECT_EQ(store->set("k", "v", Deadline::after(0.1)).code(), Code::kTimeout);
  EXPECT_EQ(store->set("k", "v", Deadline::after(0.1)).code(), Code::kTimeout);  // connects again, in vain
  EXPECT_LT(std::chrono::duration<double>(now() - begin).count(), 1.8);
}

TEST_F(TcpStore, a_client_lost_while_it_waits_leaves_nothing_behind) {
  serve();
  const std::unique_ptr<Store> store = client();
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(store->get("k", Deadline::after(0.001)).status().code(), Code::kTimeout);
  ASSERT_TRUE(store->set("k", "v", soon()).is_ok());
  EXPECT_EQ(store->get("k", soon()).value(), "v");
}

TEST_F(TcpStore, a_pending_connection_that_sends_nothing_is_closed) {
  serve({.handshake_s = 0.05});
  EXPECT_TRUE(pending_peer().is_cut_off());
}

TEST_F(TcpStore, a_pending_connection_that_stops_halfway_is_closed) {
  serve({.handshake_s = 0.3});
  for (int i = 0; i < 20; ++i) {  // on a slow machine the deadline may cut an attempt off before its answer
    Handshake handshake = Handshake::initiator(kJob, kClient).value();
    RawConnection half = pending_peer();
    half.send(handshake.output());
    if (half.receive(kHelloAnswerBytes) != kHelloAnswerBytes) continue;
    EXPECT_TRUE(half.is_cut_off());
    return;
  }
  FAIL() << "never answered";
}

TEST_F(TcpStore, garbage_instead_of_a_hello_is_cut_off_without_an_answer) {
  serve();
  RawConnection fd = pending_peer();
  fd.send(std::string(kHelloBytes, 'G'));
  EXPECT_TRUE(fd.is_cut_off());
}

TEST_F(TcpStore, another_role_of_this_job_is_refused_with_the_difference) {
  serve();
  const Status status = pending_peer().shake_hands({.role = Role::kData, .rank = 1, .size = 2}, kJob);
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_NE(status.message().find("store connection"), std::string::npos) << status.message();
}

TEST_F(TcpStore, malformed_requests_are_cut_off) {
  serve();
  const std::vector<StoreRequest> bad = {
      {static_cast<StoreOp>(0), 1, 0, 0}, {static_cast<StoreOp>(11), 1, 0, 0},
      {StoreOp::kGet, 0, 0, 0},           {StoreOp::kGet, 4097, 0, 0},
      {StoreOp::kGet, 1, 1, 0},           {StoreOp::kSet, 1, 8 * 1024 * 1024 + 1, 0},
      {StoreOp::kSet, 1, 0, 1},           {StoreOp::kGet, 1, 0, 2},
      {StoreOp::kKeys, 1, 0, 1},          {StoreOp::kErase, 1, 1, 0},
      {StoreOp::kCompareSet, 1, 2, 3},    {StoreOp::kCompareSet, 1, 2, -1},
  };
  for (const StoreRequest& request : bad) {
    RawConnection fd = member();
    const StoreHeader header = encode(request);
    fd.send(std::string(header.data(), header.size()));
    EXPECT_TRUE(fd.is_cut_off());
  }
  EXPECT_EQ(client()->add("n", 1, soon()).value(), 1);
}

TEST_F(TcpStore, a_second_request_before_the_answer_is_cut_off) {
  serve();
  RawConnection fd = member();
  const StoreHeader header = encode(StoreRequest{StoreOp::kGet, 1, 0, 0});
  std::string twice(header.data(), header.size());
  twice += 'k';
  twice += twice;
  fd.send(twice);
  EXPECT_TRUE(fd.is_cut_off());
}

TEST_F(TcpStore, pending_connections_that_fill_the_server_do_not_keep_members_out) {
  serve({.pending = 4});
  std::vector<RawConnection> pending;
  for (int i = 0; i < 10; ++i) pending.push_back(pending_peer());
  EXPECT_EQ(client()->add("n", 1, soon()).value(), 1);
}

TEST_F(TcpStore, members_are_never_too_many) {
  serve({.pending = 4});
  std::vector<std::unique_ptr<Store>> members;  // each keeps its connection
  for (int i = 1; i <= 10; ++i) {
    Result<StoreConnection> member = connect_tcp_store({address()}, kJob, Deadline::after(1));
    ASSERT_TRUE(member.is_ok()) << member.status().to_string();
    EXPECT_EQ(member.value().store->add("n", 1, soon()).value(), i);
    members.push_back(std::move(member).value().store);
  }
}

TEST_F(TcpStore, a_full_store_refuses_new_keys_and_keeps_the_old) {
  serve({.values = {.keys = 2, .total_nbytes = 100}});
  const std::unique_ptr<Store> store = client();
  ASSERT_TRUE(store->set("a", "1", soon()).is_ok());
  ASSERT_TRUE(store->set("b", "2", soon()).is_ok());
  EXPECT_EQ(store->set("c", "3", soon()).code(), Code::kUnsupported);
  EXPECT_EQ(store->set("a", std::string(100, 'x'), soon()).code(), Code::kUnsupported);
  EXPECT_EQ(store->get("a", soon()).value(), "1");
  ASSERT_TRUE(store->erase("a", soon()).is_ok());
  EXPECT_TRUE(store->set("c", "3", soon()).is_ok());
  ASSERT_TRUE(store->erase_all("c", soon()).is_ok());
  EXPECT_TRUE(store->set("d", std::string(97, 'x'), soon()).is_ok()) << "what was erased counts no more";
}

TEST_F(TcpStore, the_wildcard_and_bad_addresses_are_refused) {
  for (const std::string bad : {"0.0.0.0:0", "[::ffff:0.0.0.0]:0", "[::]:0"}) {
    const Status status = TcpStoreServer::open({bad}, kJob).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << bad;
  }
  EXPECT_EQ(TcpStoreServer::open({}, kJob).status().code(), Code::kInvalidArgument);
  for (const std::string bad :
       {"", "host", "host:", "host:1", ":1", "[::1:5", "127.0.0.1:99999", "127.0.0.1:65536", "127.0.0.1:x"}) {
    EXPECT_EQ(TcpStoreServer::open({bad}, kJob).status().code(), Code::kInvalidArgument) << bad;
    EXPECT_EQ(connect_tcp_store({bad}, kJob, soon()).status().code(), Code::kInvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace pc
