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

OpenedStore open_tcp() {
  const JobId job = {std::byte{1}, std::byte{2}};
  std::shared_ptr<TcpStoreServer> server = TcpStoreServer::open("127.0.0.1", 0, job).value();
  const auto client = [&] {
    return std::shared_ptr<Store>(connect_tcp_store({server->address()}, job, Deadline::after(10)).value());
  };
  return {server, client(), client()};
}

OpenedStore open_prefix() {
  const auto inner = std::make_shared<MemoryStore>();
  (void)inner->set("a", "not seen through a prefix", Deadline::after(1));
  return {nullptr, std::make_shared<PrefixStore>("job/", inner),
          std::make_shared<PrefixStore>("job/", inner)};
}

INSTANTIATE_TEST_SUITE_P(Stores, StoreSuite,
                         ::testing::Values(StoreCase{"memory", open_memory}, StoreCase{"tcp", open_tcp},
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
