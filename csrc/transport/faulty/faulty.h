// A wrapper around a real transport that injects faults on request. It is for tests only and is
// never shipped.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace pc {

// Thread-safety: all methods.
class FaultyTransport final : public Transport {
 public:
  explicit FaultyTransport(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}

  // Holds back everything that is posted to `peer` from now on: the peer sees a rank that is alive
  // and silent. release() posts what was held back.
  void hold(Rank peer);
  void release(Rank peer);
  // Lets `posts` more posts succeed and dies without a goodbye at the next one, as by SIGKILL.
  void die_after(std::size_t posts);

  std::string_view name() const override { return inner_->name(); }
  Capabilities capabilities() const override { return inner_->capabilities(); }
  std::string address() const override { return inner_->address(); }
  Status connect(const std::vector<std::string>& addresses, const WaitContext& context) override {
    return inner_->connect(addresses, context);
  }
  void post_send(Rank peer, const SendOp& op) override;
  void post_recv(Rank peer, const RecvOp& op) override;
  void post_probe(Rank peer, const ProbeOp& op) override;
  bool cancel(const CompletionSink* sink, const Status& why) override;
  void discard(uint32_t group, uint64_t sequence) override { inner_->discard(group, sequence); }
  void close_group(uint32_t group, std::span<const Rank> members) override {
    inner_->close_group(group, members);
  }
  std::vector<ByteStream> take_control_sockets() override { return inner_->take_control_sockets(); }
  std::size_t poll() override { return inner_->poll(); }
  int wait_fd() const override { return inner_->wait_fd(); }
  void shutdown(Deadline deadline) override;
  void abort(const Status& why) noexcept override;
  void close_in_child() noexcept override { inner_->close_in_child(); }

 private:
  struct Held {
    CompletionSink* completions;
    uint64_t token;
    std::function<void()> post;
  };
  void post(Rank peer, Held held);
  void complete_held(const Status& why);

  const std::unique_ptr<Transport> inner_;
  std::mutex mutex_;                        // guards the members below
  std::map<Rank, std::vector<Held>> held_;  // has an entry for a peer while that peer is held
  std::optional<std::size_t> posts_left_;
};

}  // namespace pc
