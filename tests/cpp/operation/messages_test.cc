// Messages of which the receiver does not know the size, type or sender beforehand.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "conformance/elements.h"
#include "failure/array_description.h"
#include "wire/frame.h"
#include "world.h"

namespace pc::testing {
namespace {

constexpr std::size_t kCounts[] = {0, 1, 1000, 16'384, 16'385, 300'001};  // of float32: eager up to 64 KiB

Status must_hold(bool truth, const std::string& what) {
  return truth ? Status::ok() : wrong("not so: " + what);
}

Elements empty_for(const ArrayDescription& array) {
  std::size_t count = 1;
  for (const int64_t length : array.shape) count *= static_cast<std::size_t>(length);
  return garbage(array.dtype, count);
}

class Messages : public ::testing::TestWithParam<Over> {
 protected:
  Outcomes run(Rank size, const Body& body) { return run_world({.over = GetParam(), .size = size}, body); }
};

TEST_P(Messages, a_receiver_learns_dtype_and_shape_and_gets_the_elements) {
  const Outcomes outcomes = run(2, [](Runtime&, Communicator& group) -> Status {
    for (const bool send_first : {true, false}) {
      for (const std::size_t count : kCounts) {
        const Elements x = contribution(DType::kF32, count, 0, 2);
        const std::vector<int64_t> shape = {1, static_cast<int64_t>(count), 1};
        if (group.rank() == 0 && !send_first) PC_TRY(group.run(Request{}));
        if (group.rank() == 0) PC_TRY(group.send({x.view(), 1, 7, nullptr, {}, shape}));
        if (group.rank() == 0 && send_first) PC_TRY(group.run(Request{}));
        if (group.rank() == 0) continue;
        if (send_first && count < 10'000) PC_TRY(group.run(Request{}));  // then it has arrived
        PC_ASSIGN_OR_RETURN(const FoundMessage found, [&]() -> Result<FoundMessage> {
          if (!send_first) {  // the receiver already waits
            std::thread later([&] { static_cast<void>(group.run(Request{})); });
            Result<FoundMessage> result = group.find(0, 7);
            later.join();
            return result;
          }
          return group.find(0, 7);
        }());
        PC_ASSIGN_OR_RETURN(const ArrayDescription array, described_array(found.description, found.nbytes));
        PC_TRY(must_hold(array.dtype == DType::kF32 && array.shape == shape, "dtype and shape"));
        Elements got = empty_for(array);
        PC_TRY(group.recv(got.buffer(), found));
        PC_TRY(must_hold(got.bytes == x.bytes, "the elements"));
        if (send_first && count >= 10'000) PC_TRY(group.run(Request{}));
      }
    }
    return Status::ok();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(Messages, from_any_rank_every_message_is_received_once) {
  constexpr int kEach = 40;
  const Outcomes outcomes = run(4, [](Runtime&, Communicator& group) -> Status {
    if (group.rank() != 0) {
      for (int32_t i = 0; i < kEach; ++i) {
        const std::vector<int32_t> x(i % 5 == 0 ? 40'000 : 1, group.rank() * 1000 + i);
        PC_TRY(group.send({reinterpret_cast<const std::byte*>(x.data()), x.size(), DType::kI32}, 0, 3));
      }
      return Status::ok();
    }
    std::vector<int> received(4, 0);
    std::mutex mutex;
    const auto receive = [&]() -> Status {
      for (int i = 0; i < 3 * kEach / 2; ++i) {
        PC_ASSIGN_OR_RETURN(const FoundMessage found, group.find(kAnyRank, 3));
        std::vector<int32_t> x(found.nbytes / 4);
        PC_TRY(group.recv({reinterpret_cast<std::byte*>(x.data()), x.size(), DType::kI32}, found));
        const std::lock_guard lock(mutex);
        const auto peer = static_cast<std::size_t>(found.peer);
        PC_TRY(must_hold(x.front() / 1000 == found.peer && x.front() == x.back(), "the sender"));
        ++received[peer];
      }
      return Status::ok();
    };
    Status other;
    std::thread second([&] { other = receive(); });
    const Status mine = receive();
    second.join();
    PC_TRY(mine);
    PC_TRY(other);
    return must_hold(received == std::vector<int>({0, kEach, kEach, kEach}), "all of each");
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(Messages, receives_from_any_rank_are_round_robin_so_that_no_sender_starves_another) {
  const Outcomes outcomes = run(3, [](Runtime&, Communicator& group) -> Status {
    std::byte x{};
    for (int i = 0; group.rank() != 0 && i < (group.rank() == 1 ? 50 : 1); ++i)
      PC_TRY(group.send({&x, 1, DType::kU8}, 0, 3));
    PC_TRY(group.run(Request{}));
    int first_of_two = -1;
    for (int i = 0; group.rank() == 0 && i < 51; ++i) {
      PC_ASSIGN_OR_RETURN(const FoundMessage found, group.find(kAnyRank, 3));
      PC_TRY(group.recv({&x, 1, DType::kU8}, found));
      if (found.peer == 2) first_of_two = i;
    }
    return must_hold(group.rank() != 0 || (first_of_two >= 0 && first_of_two < 3), "round-robin");
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

// A receive from one rank and one from any rank, in two threads, on one tag.
TEST_P(Messages, a_wait_for_any_rank_continues_when_another_receive_takes_the_message) {
  const Outcomes outcomes = run(2, [](Runtime&, Communicator& group) -> Status {
    std::byte one{1}, two{2}, got{}, ready{};
    if (group.rank() == 1) {
      PC_TRY(group.recv({&ready, 1, DType::kU8}, 0, 0));
      PC_TRY(group.send({&one, 1, DType::kU8}, 0, 5));
      return group.send({&two, 1, DType::kU8}, 0, 5);
    }
    Status other;
    std::byte any{};
    std::thread second([&] {
      Result<FoundMessage> found = group.find(kAnyRank, 5);
      other = found.is_ok() ? group.recv({&any, 1, DType::kU8}, found.value()) : found.status();
    });
    PC_ASSIGN_OR_RETURN(const std::shared_ptr<AsyncWork> named,
                        group.messages().begin_recv({{&got, 1, DType::kU8}, 1, 5}, {}));
    PC_TRY(group.send({&ready, 1, DType::kU8}, 1, 0));
    PC_TRY(named->wait({Deadline::after(20)}).value_or(wrong("it goes on")));
    second.join();
    PC_TRY(other);
    return must_hold(static_cast<int>(got) + static_cast<int>(any) == 3, "one each");
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(Messages, what_was_put_back_or_not_found_in_time_is_received_later) {
  const Outcomes outcomes = run(2, [](Runtime&, Communicator& group) -> Status {
    std::byte x{9}, got{};
    if (group.rank() == 0) {
      for (const Rank source : {Rank{1}, kAnyRank}) {
        const Result<FoundMessage> none = group.find(source, 4, 0.05);
        PC_TRY(must_hold(none.status().code() == Code::kTimeout, none.status().to_string()));
        PC_TRY(must_hold(
            none.status().to_string().find(source == 1 ? "rank 1" : "any rank") != std::string::npos,
            none.status().to_string()));
      }
      PC_TRY(group.run(Request{}));
      PC_ASSIGN_OR_RETURN(const FoundMessage found, group.find(1, 4));
      group.messages().put_back(found);
      return group.recv({&got, 1, DType::kU8}, 1, 4);
    }
    PC_TRY(group.run(Request{}));
    return group.send({&x, 1, DType::kU8}, 0, 4);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(Messages, a_search_ends_when_all_ranks_that_it_waits_for_have_left) {
  const Outcomes outcomes = run(3, [](Runtime&, Communicator& group) -> Status {
    if (group.rank() != 0) return Status::ok();  // it continues with shutdown
    const Status ended = group.find(kAnyRank, 4, 15).status();
    return must_hold(ended.code() == Code::kPeerExited, ended.to_string());
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(Messages, a_search_ends_where_all_others_have_said_goodbye_before_it_begins) {
  const Outcomes outcomes = run(3, [](Runtime& runtime, Communicator& group) -> Status {
    if (group.rank() != 0) {
      (void)runtime.shutdown(Deadline::after(0.05));  // rank 0 does not join this shutdown
      return Status::ok();
    }
    std::byte nothing{};
    for (const Rank peer : {1, 2}) {
      const Status left = group.recv(Buffer{&nothing, 1, DType::kU8}, peer, 3, 15);
      PC_TRY(must_hold(left.code() == Code::kPeerExited, left.to_string()));
    }
    const TimePoint began = now();
    const Status ended = group.find(kAnyRank, 4, 15).status();
    PC_TRY(must_hold(ended.code() == Code::kPeerExited, ended.to_string()));
    return must_hold(now() - began < std::chrono::seconds(10), "it waited until its deadline");
  });
  EXPECT_TRUE(outcomes[0].is_ok()) << text_of(outcomes);
}

TEST_P(Messages, what_is_received_as_something_else_is_a_mismatch_on_both_sides_and_the_next_one_is_right) {
  const Outcomes outcomes = run(2, [](Runtime&, Communicator& group) -> Status {
    for (const std::size_t count : {std::size_t{10}, std::size_t{100'000}}) {
      Elements x = contribution(DType::kF32, count, 0, 2), other = garbage(DType::kF32, count + 1);
      const std::vector<std::byte> before = other.bytes;
      if (group.rank() == 0) {
        const Status sent = group.send(x.view(), 1, 6);
        if (count > 20'000) PC_TRY(must_hold(sent.code() == Code::kMismatch, sent.to_string()));
        PC_TRY(group.send(x.view(), 1, 6));
      } else {
        PC_ASSIGN_OR_RETURN(const FoundMessage found, group.find(kAnyRank, 6));
        const Status status = group.recv(other.buffer(), found);
        PC_TRY(must_hold(status.code() == Code::kMismatch && other.bytes == before, status.to_string()));
        Elements got = garbage(DType::kF32, count);
        PC_TRY(group.recv(got.buffer(), 0, 6));
        PC_TRY(must_hold(got.bytes == x.bytes, "the next one"));
      }
    }
    return Status::ok();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(Messages, sendrecv_goes_round_a_ring_at_every_size) {
  for (const Rank size : {1, 2, 3, 5}) {
    const Outcomes outcomes = run(size, [](Runtime&, Communicator& group) -> Status {
      const Rank n = group.size(), next = (group.rank() + 1) % n, previous = (group.rank() + n - 1) % n;
      for (const std::size_t count : kCounts) {
        const Elements x = contribution(DType::kF32, count, group.rank(), n);
        Elements got = garbage(DType::kF32, count);
        PC_TRY(group.messages().sendrecv({x.view(), next}, got.buffer(), previous, 0));
        PC_TRY(
            must_hold(got.bytes == contribution(DType::kF32, count, previous, n).bytes, "the local peer's"));
      }
      Elements x = contribution(DType::kF32, 8, 0, n), short_one = garbage(DType::kF32, 7);
      const Buffer part{x.buffer().data + 4, 7, DType::kF32};
      const Status overlapping = group.messages().sendrecv({x.view(), next}, part, previous, 0);
      PC_TRY(must_hold(overlapping.code() == Code::kInvalidArgument, overlapping.to_string()));
      return Status::ok();
    });
    EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, Messages, ::testing::Values(Over::kInproc, Over::kTcp, Over::kShared),
                         [](const ::testing::TestParamInfo<Over>& each) { return name_of(each.param); });

TEST(ArrayDescription, EveryShapeReadsBackAsWritten) {
  const std::vector<std::vector<int64_t>> shapes = {
      {}, {0}, {1}, {127}, {128}, {3, 0, 1 << 20}, {16384, 16383}, std::vector<int64_t>(64, 1)};
  for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
    for (const std::vector<int64_t>& shape : shapes) {
      const bool is_opaque = static_cast<DType>(dtype) == DType::kOpaque;
      Layout layout;
      layout.text = "datetime64[D]";
      const uint64_t items =
          std::accumulate(shape.begin(), shape.end(), uint64_t{1},
                          [](uint64_t all, int64_t n) { return all * static_cast<uint64_t>(n); });
      const uint64_t nbytes = items * (is_opaque ? 8 : size_of(static_cast<DType>(dtype)));
      const std::string text =
          describe_array(static_cast<DType>(dtype), shape, is_opaque ? &layout : nullptr);
      const Result<ArrayDescription> array = described_array(text, nbytes);
      ASSERT_TRUE(array.is_ok()) << array.status().to_string();
      EXPECT_EQ(array.value().dtype, static_cast<DType>(dtype));
      EXPECT_EQ(array.value().shape, shape);
      EXPECT_EQ(array.value().layout, is_opaque ? layout.text : "");
      EXPECT_FALSE(described_array(text, nbytes + (items == 0 || !is_opaque ? 1 : items - 1)).is_ok() &&
                   items != 1);
    }
  }
}

TEST(ArrayDescription, WhatDoesNotFitIsNotDescribed) {
  Layout layout;
  layout.text = std::string(kMaxDescriptionBytes, 'x');
  EXPECT_EQ(describe_array(DType::kOpaque, {}, &layout), "");
  EXPECT_EQ(described_array("", 0).status().code(), Code::kMismatch);
}

TEST(ArrayDescription, HostileBytesAreAnErrorAndAllocateLittle) {
  std::mt19937 random(5);
  int good = 0;
  for (int i = 0; i < 200'000; ++i) {
    std::string text(random() % 24, '\0');
    for (char& c : text) c = static_cast<char>(random() % 3 == 0 ? random() : random() % 20);
    const uint64_t nbytes = random() % 4 == 0 ? random() : random() % 64;
    const Result<ArrayDescription> array = described_array(text, nbytes);
    if (!array.is_ok()) continue;
    ++good;
    uint64_t items = 1;
    for (const int64_t length : array.value().shape) items *= static_cast<uint64_t>(length);
    if (array.value().dtype != DType::kOpaque) {
      ASSERT_EQ(items * size_of(array.value().dtype), nbytes);
    } else if (items != 0) {
      ASSERT_EQ(nbytes % items, 0u);
    }
  }
  EXPECT_GT(good, 100);
}

}  // namespace
}  // namespace pc::testing
