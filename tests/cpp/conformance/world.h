// A world of ranks inside one test: one thread, transport, reactor and completion queue each.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "bytes.h"
#include "transport/reactor.h"
#include "transport/transport.h"
#include "wire/link.h"

namespace pc::testing {

inline constexpr double kWaitLimit = 20.0;  // in seconds; every wait here takes milliseconds

// How to make the transports of one world, not connected yet.
struct TransportKind {
  std::string name;
  std::function<std::vector<std::unique_ptr<Transport>>(Rank size, const LinkLimits& limits)> make;
};
inline void PrintTo(const TransportKind& kind, std::ostream* out) { *out << kind.name; }

inline MessageId message(uint32_t tag, uint64_t sequence, uint64_t digest = 0) {
  return {.stream = {.group = 1, .klass = StreamClass::kPointToPoint, .tag = tag},
          .sequence = sequence,
          .index = 0,
          .digest = digest};
}

// One rank. `queue` belongs to the thread to which run() passes this node.
struct Node {
  Rank rank = 0;
  std::unique_ptr<Transport> transport;
  Reactor reactor{true};
  CompletionQueue queue;

  void send(Rank peer, const MessageId& id, std::span<const std::byte> bytes, uint64_t token = 0) {
    transport->post_send(peer, {.id = id, .payload = bytes, .completions = &queue, .token = token});
  }
  void recv(Rank peer, const MessageId& id, std::span<std::byte> bytes, uint64_t token = 0) {
    transport->post_recv(
        peer, {.id = id, .payload = bytes, .nbytes = bytes.size(), .completions = &queue, .token = token});
  }
  // Returns the next `count` completions, sorted by token. It returns fewer if the wait ends
  // otherwise, which fails the test.
  std::vector<Completion> wait(std::size_t count) { return wait_on(queue, count); }
  std::vector<Completion> wait_on(CompletionQueue& from, std::size_t count) {
    const WaitContext context{.deadline = Deadline::after(kWaitLimit)};
    std::vector<Completion> all;
    Completion next;
    while (all.size() < count) {
      if (from.take(next)) {
        all.push_back(std::move(next));
      } else if (const WaitEnd end = reactor.wait(from, context); end != WaitEnd::kReady) {
        ADD_FAILURE() << "rank " << rank << " has " << all.size() << " of " << count
                      << " completions, wait ended " << static_cast<int>(end);
        break;
      }
    }
    std::sort(all.begin(), all.end(),
              [](const Completion& a, const Completion& b) { return a.token < b.token; });
    return all;
  }
  void wait_ok(std::size_t count) {
    for (const Completion& done : wait(count)) EXPECT_TRUE(done.status.is_ok()) << done.status.to_string();
  }
  WaitEnd wait_until(Deadline deadline) { return reactor.wait(queue, WaitContext{.deadline = deadline}); }
  // Connects rank 0 of two. `greets` performs the handshake of rank 1 by hand.
  void connect_to(const std::function<void()>& greets) {
    std::thread other(greets);
    const Status connected =
        transport->connect({transport->address(), "127.0.0.1:1"}, {Deadline::after(kWaitLimit)});
    other.join();
    EXPECT_TRUE(connected.is_ok()) << connected.to_string();
    EXPECT_TRUE(reactor.add(transport.get()).is_ok());
  }
  // Ends without a goodbye, as a SIGKILL appears to the other ranks.
  void die() {
    reactor.remove(transport.get());
    transport.reset();
  }
};

class World {
 public:
  World(const TransportKind& kind, Rank size, const LinkLimits& limits = {}) {
    std::vector<std::string> addresses;
    for (std::unique_ptr<Transport>& transport : kind.make(size, limits)) {
      addresses.push_back(transport->address());
      nodes_.push_back(std::make_unique<Node>());
      nodes_.back()->rank = static_cast<Rank>(nodes_.size() - 1);
      nodes_.back()->transport = std::move(transport);
    }
    run([&](Node& node) {
      const Status connected = node.transport->connect(addresses, {Deadline::after(kWaitLimit)});
      ASSERT_TRUE(connected.is_ok()) << connected.to_string();
      const Status added = node.reactor.add(node.transport.get());
      ASSERT_TRUE(added.is_ok()) << added.to_string();
    });
  }
  ~World() {
    for (const std::unique_ptr<Node>& node : nodes_) {
      if (node->transport != nullptr) node->die();
    }
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  Node& node(Rank rank) { return *nodes_[static_cast<std::size_t>(rank)]; }
  // Runs one thread per rank and returns when all have returned.
  void run(const std::function<void(Node&)>& body) {
    std::vector<std::thread> threads;
    for (const std::unique_ptr<Node>& node : nodes_) threads.emplace_back([&body, &node] { body(*node); });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  std::vector<std::unique_ptr<Node>> nodes_;
};

}  // namespace pc::testing
