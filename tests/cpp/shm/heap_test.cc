// Memory blocks of the heap are disjoint, aligned, found by their address, and reused after they
// are released.
#include "shm/heap.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

#include "shm/local_peers_thread.h"

namespace pc::shm {
namespace {

constexpr std::size_t kMiB = 1024UL * 1024;

class HeapTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<std::shared_ptr<ThreadHost>> host = ThreadHost::create(1);
    ASSERT_TRUE(host.is_ok()) << host.status().to_string();
    host_ = std::move(host).value();
    local_peers_ = host_->local_peers_of(0);
    heap_ = std::make_unique<Heap>(*local_peers_);
  }
  std::byte* allocate(std::size_t nbytes) {
    const Result<std::byte*> memory = heap_->allocate(nbytes);
    EXPECT_TRUE(memory.is_ok()) << memory.status().to_string();
    return memory.is_ok() ? memory.value() : nullptr;
  }
  std::shared_ptr<ThreadHost> host_;
  std::unique_ptr<LocalPeers> local_peers_;
  std::unique_ptr<Heap> heap_;
};

TEST_F(HeapTest, arrays_are_aligned_and_found_and_others_are_not) {
  std::byte* const small = allocate(100);
  std::byte* const large = allocate(3 * kMiB);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(small) % 128, 0U);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(large) % (2 * kMiB), 0U);
  EXPECT_TRUE(heap_->find(small, 100));
  EXPECT_TRUE(heap_->find(large + kMiB, kMiB));
  EXPECT_FALSE(heap_->find(small, 1000 * kMiB));
  std::byte elsewhere[8];
  EXPECT_FALSE(heap_->find(elsewhere, sizeof elsewhere));
  EXPECT_FALSE(heap_->find(nullptr, 0));
}

TEST_F(HeapTest, what_is_given_back_is_used_again) {
  for (int i = 0; i < 1000; ++i) heap_->free(allocate(40 * kMiB));
  EXPECT_EQ(heap_->usage().used_nbytes, 0U);
  EXPECT_LE(heap_->usage().reserved_nbytes, 70 * kMiB);
  heap_->free(nullptr);
}

TEST_F(HeapTest, arrays_of_all_sizes_never_overlap) {
  std::mt19937 random(3);
  std::map<std::byte*, std::size_t> live;
  for (int i = 0; i < 3000; ++i) {
    if (live.size() > 40 || (!live.empty() && random() % 3 == 0)) {
      auto victim = live.begin();
      std::advance(victim, random() % live.size());
      heap_->free(victim->first);
      live.erase(victim);
      continue;
    }
    const std::size_t nbytes = random() % 8 == 0 ? random() % (3 * kMiB) : random() % 5000;
    std::byte* const memory = allocate(nbytes);
    const auto next = live.lower_bound(memory);
    if (next != live.end()) {
      ASSERT_LE(memory + nbytes, next->first);
    }
    if (next != live.begin()) {
      ASSERT_LE(std::prev(next)->first + std::prev(next)->second, memory);
    }
    live.emplace(memory, nbytes);
    std::memset(memory, i, nbytes);
  }
  while (!live.empty()) {
    heap_->free(live.begin()->first);
    live.erase(live.begin());
  }
  EXPECT_EQ(heap_->usage().used_nbytes, 0U);
  EXPECT_LE(heap_->usage().reserved_nbytes, 140 * kMiB);
}

TEST_F(HeapTest, an_impossible_size_is_refused) {
  EXPECT_EQ(heap_->allocate(~std::size_t{0}).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace pc::shm
