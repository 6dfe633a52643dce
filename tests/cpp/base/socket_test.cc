#include "base/socket.h"

#include <gtest/gtest.h>
#include <net/if.h>

#include <string>

#include "base/interfaces.h"

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
