#include "conformance/raw_connection.h"
#include "conformance/store_suite.h"
#include "store/memory.h"
#include "store/prefix.h"
#include "store/tcp_client.h"
#include "store/tcp_server.h"

namespace pc::testing {
namespace {

OpenedStore open_memory() {
  const auto store = std::make_shared<MemoryStore>();
  return {nullptr, store, store};
}

OpenedStore open_tcp_with(bool encrypts) {
  const Credentials job = testing::credentials_of(1, 1, encrypts);
  std::shared_ptr<TcpStoreServer> server = TcpStoreServer::open({"127.0.0.1:0"}, job).value();
  const auto client = [&] {
    return std::shared_ptr<Store>(
        connect_tcp_store(server->addresses(), job, Deadline::after(10)).value().store);
  };
  return {server, client(), client()};
}
OpenedStore open_tcp() { return open_tcp_with(false); }
OpenedStore open_tcp_encrypted() { return open_tcp_with(true); }

OpenedStore open_prefix() {
  const auto inner = std::make_shared<MemoryStore>();
  (void)inner->set("a", "not seen through a prefix", Deadline::after(1));
  return {nullptr, std::make_shared<PrefixStore>("job/", inner),
          std::make_shared<PrefixStore>("job/", inner)};
}

INSTANTIATE_TEST_SUITE_P(Stores, StoreSuite,
                         ::testing::Values(StoreCase{"memory", open_memory}, StoreCase{"tcp", open_tcp},
                                           StoreCase{"tcp_encrypted", open_tcp_encrypted},
                                           StoreCase{"prefix", open_prefix}),
                         [](const ::testing::TestParamInfo<StoreCase>& each) { return each.param.name; });

TEST(PrefixStore, two_prefixes_do_not_see_each_other) {
  const auto inner = std::make_shared<MemoryStore>();
  PrefixStore a("a/", inner), b("b/", inner);
  ASSERT_TRUE(a.set("key", "of a", Deadline::after(1)).is_ok());
  EXPECT_EQ(b.get("key", Deadline::after(0.01)).status().code(), Code::kTimeout);
  EXPECT_EQ(inner->get("a/key", Deadline::after(1)).value(), "of a");
}

}  // namespace
}  // namespace pc::testing
