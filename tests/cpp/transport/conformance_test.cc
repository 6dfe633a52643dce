// Every transport fulfills the contract of conformance/transport_suite.h.
#include "conformance/transport_suite.h"
#include "shm/local_peers_thread.h"
#include "transport/inproc/inproc.h"
#include "transport/shm/shm.h"
#include "transport/tcp/tcp.h"

namespace pc::testing {
namespace {

std::vector<std::unique_ptr<Transport>> make_inproc(Rank size, const LinkLimits& limits) {
  const std::shared_ptr<InprocHub> hub = InprocHub::create(size, limits);
  std::vector<std::unique_ptr<Transport>> transports;
  for (Rank rank = 0; rank < size; ++rank) transports.push_back(hub->make_transport(rank));
  return transports;
}

std::vector<std::unique_ptr<Transport>> make_tcp(Rank size, const LinkLimits& limits, bool encrypts,
                                                 int sockets = 1) {
  Credentials credentials;
  credentials.encrypts = encrypts;
  std::vector<std::unique_ptr<Transport>> transports;
  for (Rank rank = 0; rank < size; ++rank) {
    Result<std::unique_ptr<Transport>> made = make_tcp_transport(
        {.rank = rank, .size = size, .credentials = credentials, .limits = limits, .sockets = sockets});
    EXPECT_TRUE(made.is_ok()) << made.status().to_string();
    transports.push_back(std::move(made).value());
  }
  return transports;
}

// Owns the shared memory of its ranks.
class OverThreads final : public Transport {
 public:
  OverThreads(Rank rank, Rank size, const LinkLimits& limits, std::unique_ptr<Transport> inner,
              std::unique_ptr<LocalPeers> local_peers)
      : local_peers_(std::move(local_peers)),
        wakeup_(ShmWakeup::create(*local_peers_, rank, size).value()),
        shm_(make_shm_transport({.rank = rank, .size = size, .epoch = 0, .limits = limits}, std::move(inner),
                                *local_peers_, *wakeup_)
                 .value()) {}
  std::string_view name() const override { return shm_->name(); }
  Capabilities capabilities() const override { return shm_->capabilities(); }
  std::string address() const override { return shm_->address(); }
  Status connect(const std::vector<std::string>& addresses, const WaitContext& context) override {
    return shm_->connect(addresses, context);
  }
  void post_send(Rank peer, const SendOp& op) override { shm_->post_send(peer, op); }
  void post_recv(Rank peer, const RecvOp& op) override { shm_->post_recv(peer, op); }
  void post_probe(Rank peer, const ProbeOp& op) override { shm_->post_probe(peer, op); }
  bool cancel(const CompletionSink* sink, const Status& why) override { return shm_->cancel(sink, why); }
  void discard(uint32_t group, uint64_t sequence) override { shm_->discard(group, sequence); }
  void close_group(uint32_t group, std::span<const Rank> members) override {
    shm_->close_group(group, members);
  }
  std::vector<ByteStream> take_control_sockets() override { return shm_->take_control_sockets(); }
  std::size_t poll() override { return shm_->poll(); }
  int wait_fd() const override { return shm_->wait_fd(); }
  bool fall_asleep() override { return shm_->fall_asleep(); }
  void wake_up() override { shm_->wake_up(); }
  void shutdown(Deadline deadline) override { shm_->shutdown(deadline); }
  void abort(const Status& why) noexcept override { shm_->abort(why); }
  void close_in_child() noexcept override {
    shm_->close_in_child();
    local_peers_->close_in_child();
  }

 private:
  const std::unique_ptr<LocalPeers> local_peers_;
  const std::unique_ptr<ShmWakeup> wakeup_;
  const std::unique_ptr<Transport> shm_;
};

std::vector<std::unique_ptr<Transport>> make_shm(Rank size, const LinkLimits& limits) {
  const std::shared_ptr<ThreadHost> host = ThreadHost::create(size).value();
  std::vector<std::unique_ptr<Transport>> transports = make_tcp(size, limits, false);
  for (Rank rank = 0; rank < size; ++rank) {
    std::unique_ptr<Transport>& transport = transports[static_cast<std::size_t>(rank)];
    transport =
        std::make_unique<OverThreads>(rank, size, limits, std::move(transport), host->local_peers_of(rank));
  }
  return transports;
}

std::string name_of_kind(const ::testing::TestParamInfo<TransportKind>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(
    All, TransportSuite,
    ::testing::Values(
        TransportKind{"inproc", make_inproc},
        TransportKind{"tcp",
                      [](Rank size, const LinkLimits& limits) { return make_tcp(size, limits, false); }},
        TransportKind{"tcp_of_3_sockets",
                      [](Rank size, const LinkLimits& limits) { return make_tcp(size, limits, false, 3); }},
        TransportKind{"shm", make_shm},
        TransportKind{"tcp_encrypted",
                      [](Rank size, const LinkLimits& limits) { return make_tcp(size, limits, true); }},
        TransportKind{"tcp_encrypted_of_2_sockets",
                      [](Rank size, const LinkLimits& limits) { return make_tcp(size, limits, true, 2); }}),
    name_of_kind);

}  // namespace
}  // namespace pc::testing
