#include "net/socket.h"

#include <gtest/gtest.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <string>
#include <utility>

#include "net/interfaces.h"

namespace pc {
namespace {

SocketAddress ip(const std::string& text) { return parse_ip(text, 1).value(); }

TEST(Socket, EndpointsAreReadAsTheyAreWritten) {
  for (const char* text : {"127.0.0.1:4711", "[::1]:4711", "10.1.2.3:1", "10.1.2.3:0"}) {
    const Result<SocketAddress> address = parse_endpoint(text);
    ASSERT_TRUE(address.is_ok()) << address.status().to_string();
    EXPECT_EQ(to_string(address.value()), text);
  }
  for (const char* text : {"", ":", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:99999", "host:1",
                           "[::1:1", "127.0.0.1:1x"}) {
    EXPECT_EQ(parse_endpoint(text).status().code(), Code::kInvalidArgument) << text;
  }
}

TEST(Socket, LoopbackAndWildcardAreKnownInAllTheirSpellings) {
  for (const char* text : {"127.0.0.1", "127.0.1.1", "::1", "::ffff:127.0.0.1"})
    EXPECT_TRUE(is_loopback(ip(text))) << text;
  for (const char* text : {"10.0.0.1", "::2", "::ffff:10.0.0.1"}) EXPECT_FALSE(is_loopback(ip(text))) << text;
  for (const char* text : {"0.0.0.0", "::", "::ffff:0.0.0.0"}) {
    EXPECT_TRUE(is_wildcard(ip(text))) << text;
    const Fd fd = new_socket(ip(text)).value();
    EXPECT_EQ(listen_on(fd, ip(text), 1).code(), Code::kInvalidArgument) << text;
  }
}

TEST(Socket, OneHostIsOneSourceWhateverItsPortAndItsPlaceInItsNetwork) {
  EXPECT_EQ(host_bytes(parse_endpoint("10.0.0.1:1").value()),
            host_bytes(parse_endpoint("10.0.0.1:2").value()));
  EXPECT_NE(host_bytes(ip("10.0.0.1")), host_bytes(ip("10.0.0.2")));
  EXPECT_EQ(host_bytes(ip("2001:db8::1")), host_bytes(ip("2001:db8::ffff:1"))) << "one /64";
  EXPECT_NE(host_bytes(ip("2001:db8::1")), host_bytes(ip("2001:db9::1")));
}

// Within a host the kernel reports when a process ends. A slow process ends no connection.
TEST(Socket, NoConnectionWithinAHostEndsBecauseAnAnswerIsLate) {
  const Fd listener = new_socket(ip("127.0.0.1")).value();
  ASSERT_TRUE(listen_on(listener, parse_endpoint("127.0.0.1:0").value(), 1).is_ok());
  const Fd calls = new_socket(ip("127.0.0.1")).value();
  ASSERT_TRUE(start_connect(calls, local_address(listener.get())).is_ok());
  pollfd ready{listener.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&ready, 1, 10'000), 1);
  const Fd answers = accept_one(listener.get()).value();
  for (const Fd* const each : {&calls, &answers}) {
    expect_answers(each->get());
    constexpr std::pair<int, int> kOptions[] = {{IPPROTO_TCP, TCP_USER_TIMEOUT}, {SOL_SOCKET, SO_KEEPALIVE}};
    for (const auto& [level, option] : kOptions) {
      int value = -1;
      socklen_t length = sizeof value;
      ASSERT_EQ(::getsockopt(each->get(), level, option, &value, &length), 0);
      EXPECT_EQ(value, 0);
    }
  }
}

TEST(Interfaces, LoopbackIsAmongThem) {
  const Result<std::vector<Interface>> all = interfaces();
  ASSERT_TRUE(all.is_ok()) << all.status().to_string();
  bool found = false;
  for (const Interface& each : all.value())
    found = found || (each.ip == "127.0.0.1" && (each.flags & IFF_LOOPBACK) != 0 && !each.name.empty());
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace pc
