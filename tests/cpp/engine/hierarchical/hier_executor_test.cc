// The calls that the executor of groups over several domains makes to the transport.
#include "engine/hierarchical/hier_executor.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <utility>
#include <vector>

#include "base/fd.h"
#include "shm/local_peers_single.h"

namespace pc::shm {
namespace {

class ListeningTransport final : public Transport {
 public:
  std::vector<std::pair<uint32_t, uint64_t>> discarded;

  std::string_view name() const override { return "listening"; }
  Capabilities capabilities() const override { return {}; }
  std::string address() const override { return ""; }
  Status connect(const std::vector<std::string>&, const WaitContext&) override { return {}; }
  void post_send(Rank, const SendOp&) override {}
  void post_recv(Rank, const RecvOp&) override {}
  void post_probe(Rank, const ProbeOp&) override {}
  void discard(uint32_t group, uint64_t sequence) override { discarded.emplace_back(group, sequence); }
  void close_group(uint32_t, std::span<const Rank>) override {}
  std::vector<ByteStream> take_control_sockets() override { return {}; }
  bool cancel(const CompletionSink*, const Status&) override { return false; }
  std::size_t poll() override { return 0; }
  int wait_fd() const override { return never_.get(); }
  void shutdown(Deadline) override {}
  void abort(const Status&) noexcept override {}
  void close_in_child() noexcept override {}

 private:
  const Fd never_{::eventfd(0, EFD_CLOEXEC)};
};

// Without the discard, messages of the call would be kept forever.
TEST(HierExecutor, a_call_that_is_refused_before_its_group_made_any_is_discarded) {
  const std::unique_ptr<LocalPeers> local_peers = make_single_local_peers(0).value();
  const std::unique_ptr<ShmWakeup> wakeup = ShmWakeup::create(*local_peers, 0, 3).value();
  const std::unique_ptr<Host> host = Host::create(*local_peers, *wakeup).value();
  ListeningTransport transport;
  Reactor reactor{false};
  HierExecutor executor({.host = host.get(), .transport = &transport, .reactor = &reactor});
  executor.cancel(5, 1, Status(Code::kAborted, "given up before it was made here"));
  ASSERT_EQ(transport.discarded.size(), 1U);
  EXPECT_EQ(transport.discarded.front(), std::pair(5U, uint64_t{1}));
}

}  // namespace
}  // namespace pc::shm
