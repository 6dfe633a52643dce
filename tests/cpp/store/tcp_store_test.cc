// What the TCP store promises against strangers, wrong jobs, missing servers and clients that go away.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "store/endpoint.h"
#include "store/protocol.h"
#include "store/tcp_client.h"
#include "store/tcp_server.h"

namespace pc {
namespace {

const JobId kJob = {std::byte{7}};
Deadline soon() { return Deadline::after(10); }

Fd connect_raw(const std::string& address) {
  const Endpoint endpoint = resolve(address).value().front();
  Fd fd(::socket(endpoint.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(fd.get(), endpoint.get(), endpoint.length), 0);
  return fd;
}
void send_raw(const Fd& fd, const void* data, std::size_t nbytes) {
  EXPECT_EQ(::send(fd.get(), data, nbytes, MSG_NOSIGNAL), static_cast<ssize_t>(nbytes));
}
void send_hello(const Fd& fd, const JobId& job, Role role = Role::kStore) {
  Hello hello;
  hello.role = role;
  hello.job = job;
  HelloBytes bytes;
  encode(hello, bytes);
  send_raw(fd, bytes.data(), bytes.size());
}
// What the server sends until it closes the connection; waits at most ten seconds for that.
std::string read_until_closed(const Fd& fd) {
  std::string all;
  for (;;) {
    pollfd waiting{fd.get(), POLLIN, 0};
    if (::poll(&waiting, 1, 10'000) != 1) return all + " (still open)";
    char piece[4096];
    const ssize_t n = ::recv(fd.get(), piece, sizeof piece, 0);
    if (n <= 0) return all;
    all.append(piece, static_cast<std::size_t>(n));
  }
}

class TcpStore : public ::testing::Test {
 protected:
  void serve(const StoreServerLimits& limits = {}) {
    server_ = TcpStoreServer::open("127.0.0.1", 0, kJob, limits).value();
  }
  std::unique_ptr<Store> client() { return connect_tcp_store({server_->address()}, kJob, soon()).value(); }
  std::unique_ptr<TcpStoreServer> server_;
};

TEST_F(TcpStore, a_client_may_come_before_the_server) {
  serve();
  const std::string address = server_->address();
  server_.reset();
  std::thread late;
  int looks = 0;  // the probe is asked between attempts: by the third look at least one attempt has failed
  const Result<std::unique_ptr<Store>> store = connect_tcp_store({address}, kJob, soon(), [&] {
    if (++looks == 3) server_ = TcpStoreServer::open(address, kJob).value();
    return false;
  });
  ASSERT_TRUE(store.is_ok()) << store.status().to_string();
  EXPECT_GE(looks, 3);
}

TEST_F(TcpStore, the_address_that_answers_with_the_right_job_is_taken) {
  serve();
  const std::unique_ptr<TcpStoreServer> other =
      TcpStoreServer::open("127.0.0.1", 0, JobId{std::byte{8}}).value();
  const Result<std::unique_ptr<Store>> store =
      connect_tcp_store({other->address(), server_->address()}, kJob, soon());
  ASSERT_TRUE(store.is_ok()) << store.status().to_string();
  EXPECT_EQ(store.value()->add("n", 1, soon()).value(), 1);
}

TEST_F(TcpStore, an_unreachable_store_is_a_timeout_that_names_address_attempts_and_cause) {
  serve();
  const std::string address = server_->address();
  server_.reset();
  const Status status = connect_tcp_store({address}, kJob, Deadline::after(0.1)).status();
  EXPECT_EQ(status.code(), Code::kTimeout);
  for (const std::string part : {address.c_str(), "attempt", "refused", "Check that"}) {
    EXPECT_NE(status.message().find(part), std::string::npos) << part << " in: " << status.message();
  }
}

TEST_F(TcpStore, a_client_of_another_job_is_told_so) {
  serve();
  const Status status =
      connect_tcp_store({server_->address()}, JobId{std::byte{9}}, Deadline::after(0.1)).status();
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_NE(status.message().find("job"), std::string::npos) << status.message();
}

TEST_F(TcpStore, an_interrupt_ends_every_wait) {
  serve();
  bool interrupted = false;
  const std::unique_ptr<Store> store =
      connect_tcp_store({server_->address()}, kJob, soon(), [&] { return interrupted; }).value();
  interrupted = true;
  EXPECT_EQ(store->get("never", soon()).status().code(), Code::kInterrupted);
}

TEST_F(TcpStore, a_server_that_goes_is_an_error_and_no_hang) {
  serve();
  const std::unique_ptr<Store> store = client();
  server_.reset();
  const Status status = store->get("a", Deadline::after(1)).status();
  EXPECT_TRUE(status.code() == Code::kPeerFailure || status.code() == Code::kSystem ||
              status.code() == Code::kTimeout)
      << status.to_string();
}

TEST_F(TcpStore, a_store_that_has_gone_is_not_reported_as_a_missing_key) {
  serve();
  const std::string address = server_->address();
  const std::unique_ptr<Store> store = client();
  server_.reset();
  EXPECT_FALSE(store->get("a", soon()).is_ok());  // finds out; from here on every call has to connect again
  for (const Status& status : {store->get("the/key", Deadline::after(0.1)).status(),
                               store->set("the/key", "v", Deadline::after(0.1)),
                               store->add("the/key", 1, Deadline::after(0.1)).status(),
                               store->erase("the/key", Deadline::after(0.1))}) {
    EXPECT_EQ(status.code(), Code::kTimeout);
    for (const std::string part : {"the/key", address.c_str(), "refused"}) {
      EXPECT_NE(status.message().find(part), std::string::npos) << part << " in: " << status.message();
    }
    EXPECT_EQ(status.message().find("nobody has set it"), std::string::npos) << status.message();
  }
}

TEST_F(TcpStore, a_client_that_goes_while_it_waits_leaves_nothing_behind) {
  serve();
  const std::unique_ptr<Store> store = client();
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(store->get("k", Deadline::after(0.001)).status().code(), Code::kTimeout);
  ASSERT_TRUE(store->set("k", "v", soon()).is_ok());
  EXPECT_EQ(store->get("k", soon()).value(), "v");
}

TEST_F(TcpStore, a_stranger_that_says_nothing_is_cut_off) {
  serve({.hello_s = 0.05});
  EXPECT_EQ(read_until_closed(connect_raw(server_->address())), "");
}

TEST_F(TcpStore, garbage_instead_of_a_hello_is_cut_off_without_an_answer) {
  serve();
  const Fd fd = connect_raw(server_->address());
  const std::string garbage(kHelloBytes, 'G');
  send_raw(fd, garbage.data(), garbage.size());
  EXPECT_EQ(read_until_closed(fd), "");
}

TEST_F(TcpStore, who_does_not_know_the_job_is_not_told_it) {
  serve();
  const Fd fd = connect_raw(server_->address());
  send_hello(fd, JobId{std::byte{9}});
  EXPECT_EQ(read_until_closed(fd), "");
}

TEST_F(TcpStore, another_role_of_this_job_gets_our_hello_and_no_more) {
  serve();
  const Fd fd = connect_raw(server_->address());
  send_hello(fd, kJob, Role::kData);
  EXPECT_EQ(read_until_closed(fd).size(), kHelloBytes);
}

TEST_F(TcpStore, malformed_requests_are_cut_off) {
  serve();
  const std::vector<StoreRequest> bad = {
      {static_cast<StoreOp>(0), 1, 0, 0}, {static_cast<StoreOp>(5), 1, 0, 0},
      {StoreOp::kGet, 0, 0, 0},           {StoreOp::kGet, 4097, 0, 0},
      {StoreOp::kGet, 1, 1, 0},           {StoreOp::kSet, 1, 8 * 1024 * 1024 + 1, 0},
      {StoreOp::kSet, 1, 0, 1},
  };
  for (const StoreRequest& request : bad) {
    const Fd fd = connect_raw(server_->address());
    send_hello(fd, kJob);
    const StoreHeader header = encode(request);
    send_raw(fd, header.data(), header.size());
    EXPECT_EQ(read_until_closed(fd).size(), kHelloBytes);
  }
  EXPECT_EQ(client()->add("n", 1, soon()).value(), 1);
}

TEST_F(TcpStore, a_second_request_before_the_answer_is_cut_off) {
  serve();
  const Fd fd = connect_raw(server_->address());
  send_hello(fd, kJob);
  const StoreHeader header = encode(StoreRequest{StoreOp::kGet, 1, 0, 0});
  std::string twice(header.data(), header.size());
  twice += 'k';
  twice += twice;
  send_raw(fd, twice.data(), twice.size());
  EXPECT_EQ(read_until_closed(fd).size(), kHelloBytes);
}

TEST_F(TcpStore, strangers_that_fill_the_server_do_not_keep_members_out) {
  serve({.strangers = 4});
  std::vector<Fd> strangers;
  for (int i = 0; i < 10; ++i) strangers.push_back(connect_raw(server_->address()));
  EXPECT_EQ(client()->add("n", 1, soon()).value(), 1);
}

TEST_F(TcpStore, members_are_never_too_many) {
  serve({.strangers = 4});
  std::vector<std::unique_ptr<Store>> members;  // each keeps its connection
  for (int i = 1; i <= 10; ++i) {
    Result<std::unique_ptr<Store>> member = connect_tcp_store({server_->address()}, kJob, Deadline::after(1));
    ASSERT_TRUE(member.is_ok()) << member.status().to_string();
    EXPECT_EQ(member.value()->add("n", 1, soon()).value(), i);
    members.push_back(std::move(member).value());
  }
}

TEST_F(TcpStore, a_full_store_refuses_new_keys_and_keeps_the_old) {
  serve({.keys = 2, .total_nbytes = 100});
  const std::unique_ptr<Store> store = client();
  ASSERT_TRUE(store->set("a", "1", soon()).is_ok());
  ASSERT_TRUE(store->set("b", "2", soon()).is_ok());
  EXPECT_EQ(store->set("c", "3", soon()).code(), Code::kUnsupported);
  EXPECT_EQ(store->set("a", std::string(100, 'x'), soon()).code(), Code::kUnsupported);
  EXPECT_EQ(store->get("a", soon()).value(), "1");
  ASSERT_TRUE(store->erase("a", soon()).is_ok());
  EXPECT_TRUE(store->set("c", "3", soon()).is_ok());
}

TEST_F(TcpStore, the_wildcard_and_bad_addresses_are_refused) {
  EXPECT_EQ(TcpStoreServer::open("0.0.0.0", 0, kJob).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(TcpStoreServer::open("[::ffff:0.0.0.0]:0", kJob).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(TcpStoreServer::open("[::]:0", kJob).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(TcpStoreServer::open("127.0.0.1", 65536, kJob).status().code(), Code::kInvalidArgument);
  for (const std::string address : {"", "host", "host:", ":1", "[::1:5", "127.0.0.1:99999", "127.0.0.1:x"}) {
    EXPECT_EQ(connect_tcp_store({address}, kJob, soon()).status().code(), Code::kInvalidArgument) << address;
  }
}

}  // namespace
}  // namespace pc
