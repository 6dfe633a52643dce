// The special case of ranks inside one process: the hub that connects them.
#include "transport/inproc/inproc.h"

#include <gtest/gtest.h>

namespace pc {
namespace {

TEST(InprocHub, EveryRankHasOneTransport) {
  const std::shared_ptr<InprocHub> hub = InprocHub::create(2);
  const std::unique_ptr<Transport> zero = hub->make_transport(0);
  EXPECT_NE(zero, nullptr);
  EXPECT_EQ(hub->make_transport(0), nullptr);
  EXPECT_EQ(hub->make_transport(2), nullptr);
  EXPECT_EQ(hub->make_transport(-1), nullptr);
}

TEST(InprocHub, ConnectNamesTheRanksThatDoNotJoin) {
  const std::shared_ptr<InprocHub> hub = InprocHub::create(3);
  const std::unique_ptr<Transport> one = hub->make_transport(1);
  const Status status = one->connect({"", "", ""}, {Deadline::after(0.01)});
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_NE(status.message().find("0, 2"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace pc
