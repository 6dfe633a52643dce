// The contract of every kind of local peers: threads of one process, and descriptors of several
// processes.
#include "shm/local_peers.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <string>
#include <thread>
#include <vector>

#include "descriptors.h"
#include "shm/local_peers_process.h"
#include "shm/local_peers_thread.h"

namespace pc {
namespace {

using testing::duplicate;
enum class Kind : uint8_t { kThreads, kProcesses };
using All = std::vector<std::unique_ptr<LocalPeers>>;  // by rank

All make(Kind kind, Rank size) {
  All all;
  if (kind == Kind::kThreads) {
    const std::shared_ptr<ThreadHost> host = ThreadHost::create(size).value();
    for (Rank rank = 0; rank < size; ++rank) all.push_back(host->local_peers_of(rank));
    return all;
  }
  std::vector<SharedPart> parts;
  for (Rank rank = 0; rank < size; ++rank) parts.push_back(SharedPart::create().value());
  std::vector<std::vector<PeerPart>> peers(parts.size());
  for (std::size_t to = 0; to < parts.size(); ++to) {
    for (std::size_t from = 0; from < parts.size(); ++from) {
      if (from == to) continue;
      peers[to].push_back(PeerPart::adopt(static_cast<Rank>(from), duplicate(parts[from].memory.fd()),
                                          duplicate(parts[from].notifier.fd()))
                              .value());
    }
  }
  for (std::size_t rank = 0; rank < parts.size(); ++rank)
    all.push_back(
        make_process_local_peers(static_cast<Rank>(rank), std::move(parts[rank]), std::move(peers[rank])));
  return all;
}

class LocalPeersTest : public ::testing::TestWithParam<Kind> {
 protected:
  All all = make(GetParam(), 3);
};
INSTANTIATE_TEST_SUITE_P(Both, LocalPeersTest, ::testing::Values(Kind::kThreads, Kind::kProcesses),
                         [](const auto& test) {
                           return test.param == Kind::kThreads ? "threads" : "processes";
                         });

bool notified(const LocalPeers& local_peers) {
  pollfd polled = {local_peers.notify_fd(), POLLIN, 0};
  return ::poll(&polled, 1, 0) == 1;
}

constexpr std::size_t kFirst = LocalPeers::kFirstNbytes;

TEST_P(LocalPeersTest, every_rank_is_there_and_no_other) {
  for (const auto& each : all) {
    for (Rank rank = 0; rank < 3; ++rank) EXPECT_TRUE(each->has(rank));
    EXPECT_FALSE(each->has(3));
    EXPECT_FALSE(each->has(-1));
  }
}

TEST_P(LocalPeersTest, own_memory_begins_at_offset_0_added_memory_follows_and_all_ranks_map_it) {
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const SharedRange first = all[rank]->grow(4096).value(), next = all[rank]->grow(4096).value();
    EXPECT_EQ(all[rank]->map(static_cast<Rank>(rank), 0, kFirst).value()[kFirst - 1], std::byte{0});
    EXPECT_EQ(first.offset, kFirst);
    EXPECT_EQ(next.offset, kFirst + 4096);
    EXPECT_EQ(next.memory[9], std::byte{0});
    next.memory[9] = static_cast<std::byte>(10 + rank);
  }
  for (const auto& each : all) {
    for (Rank rank = 0; rank < 3; ++rank)
      EXPECT_EQ(each->map(rank, kFirst + 4096 + 9, 1).value()[0], static_cast<std::byte>(10 + rank));
  }
}

TEST_P(LocalPeersTest, a_piece_over_two_that_were_given_apart_is_one) {
  const SharedRange first = all[0]->grow(4096).value(), next = all[0]->grow(4096).value();
  first.memory.back() = std::byte{1};
  next.memory.front() = std::byte{2};
  const std::span<std::byte> both = all[1]->map(0, kFirst + 4095, 2).value();
  EXPECT_EQ(both[0], std::byte{1});
  EXPECT_EQ(both[1], std::byte{2});
}

TEST_P(LocalPeersTest, what_is_not_there_is_a_mismatch_that_names_the_rank) {
  ASSERT_TRUE(all[0]->grow(4096).is_ok());
  for (const auto& [offset, nbytes] :
       {std::pair<uint64_t, std::size_t>{kFirst + 4096, 1}, {0, kFirst + 4097}, {UINT64_MAX, 2}}) {
    const Status status = all[1]->map(0, offset, nbytes).status();
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_EQ(status.peer(), 0);
  }
  EXPECT_EQ(all[1]->map(2, kFirst, 1).status().code(), Code::kMismatch) << "it has added none yet";
  EXPECT_EQ(all[1]->map(3, 0, 1).status().code(), Code::kInternal);
}

TEST_P(LocalPeersTest, a_notification_reaches_its_rank_alone_until_it_is_cleared) {
  all[2]->notify(1);
  all[0]->notify(1);
  EXPECT_FALSE(notified(*all[0]));
  EXPECT_TRUE(notified(*all[1]));
  EXPECT_FALSE(notified(*all[2]));
  all[1]->clear_notification();
  EXPECT_FALSE(notified(*all[1]));
}

TEST_P(LocalPeersTest, ranks_may_grow_and_map_at_the_same_time) {
  constexpr int kTimes = 50;
  std::vector<std::thread> ranks;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    for (int twice = 0; twice < 2; ++twice) {
      ranks.emplace_back([&, rank] {
        for (int i = 0; i < kTimes; ++i) {
          const SharedRange range = all[rank]->grow(4096).value();
          range.memory[0] = std::byte{1};
          EXPECT_TRUE(all[rank]->map(static_cast<Rank>(rank), range.offset, 4096).is_ok());
          (void)all[rank]->map(static_cast<Rank>((rank + 1) % all.size()), 4096u * static_cast<unsigned>(i),
                               4096);
        }
      });
    }
  }
  for (std::thread& rank : ranks) rank.join();
  for (Rank rank = 0; rank < 3; ++rank)
    EXPECT_EQ(all[0]->map(rank, 0, 2 * kTimes * 4096).value().size(), 2u * kTimes * 4096u);
}

TEST_P(LocalPeersTest, a_child_closes_the_descriptors) {
  const int notifier = all[0]->notify_fd();
  all[0]->close_in_child();
  EXPECT_EQ(::fcntl(notifier, F_GETFD), -1);
}

}  // namespace
}  // namespace pc
