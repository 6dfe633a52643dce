// Every transport keeps the promises of conformance/transport_suite.h.
#include "conformance/transport_suite.h"
#include "transport/inproc/inproc.h"
#include "transport/tcp/tcp.h"

namespace pc::testing {
namespace {

std::vector<std::unique_ptr<Transport>> make_inproc(Rank size, const LinkLimits& limits) {
  const std::shared_ptr<InprocHub> hub = InprocHub::create(size, limits);
  std::vector<std::unique_ptr<Transport>> transports;
  for (Rank rank = 0; rank < size; ++rank) transports.push_back(hub->make_transport(rank));
  return transports;
}

std::vector<std::unique_ptr<Transport>> make_tcp(Rank size, const LinkLimits& limits, bool encrypts) {
  Credentials credentials;
  credentials.encrypts = encrypts;
  std::vector<std::unique_ptr<Transport>> transports;
  for (Rank rank = 0; rank < size; ++rank) {
    Result<std::unique_ptr<Transport>> made =
        make_tcp_transport({.rank = rank, .size = size, .credentials = credentials, .limits = limits});
    EXPECT_TRUE(made.is_ok()) << made.status().to_string();
    transports.push_back(std::move(made).value());
  }
  return transports;
}

std::string name_of_kind(const ::testing::TestParamInfo<TransportKind>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(All, TransportSuite,
                         ::testing::Values(TransportKind{"inproc", make_inproc},
                                           TransportKind{"tcp",
                                                         [](Rank size, const LinkLimits& limits) {
                                                           return make_tcp(size, limits, false);
                                                         }},
                                           TransportKind{"tcp_encrypted",
                                                         [](Rank size, const LinkLimits& limits) {
                                                           return make_tcp(size, limits, true);
                                                         }}),
                         name_of_kind);

}  // namespace
}  // namespace pc::testing
