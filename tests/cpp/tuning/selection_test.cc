#include "tuning/selection.h"

#include <gtest/gtest.h>

#include <vector>

#include "failure/descriptor.h"

namespace pc {
namespace {

std::string_view chosen(const SelectionTable& table, Collective collective, uint64_t nbytes,
                        GroupShape group) {
  return table.choose(collective, nbytes, group).algorithm->name;
}

TEST(Selection, the_defaults_change_to_the_ring_at_the_measured_sizes) {
  const SelectionTable table = SelectionTable::defaults();
  EXPECT_EQ(chosen(table, Collective::kAllreduce, 32 * 1024 - 1, {2}), "recursive_doubling");
  EXPECT_EQ(chosen(table, Collective::kAllreduce, 32 * 1024, {2}), "ring");
  EXPECT_EQ(chosen(table, Collective::kAllreduce, 16 * 1024 - 1, {3}), "recursive_doubling");
  EXPECT_EQ(chosen(table, Collective::kAllreduce, 16 * 1024, {3}), "ring");
  EXPECT_EQ(chosen(table, Collective::kBarrier, 0, {7}), "dissemination");
}

TEST(Selection, every_collective_has_an_algorithm_for_every_size_and_number_of_ranks) {
  const SelectionTable table = SelectionTable::defaults();
  for (int c = 0; c < kCollectiveCount; ++c) {
    for (const uint64_t nbytes :
         {uint64_t{0}, uint64_t{1}, uint64_t{1} << 20, uint64_t{1} << 50, kUnknownSize}) {
      for (const Rank size : {1, 2, 3, 8, 1000}) {
        for (const bool even : {true, false})
          EXPECT_NE(table.choose(static_cast<Collective>(c), nbytes, {size}, even).algorithm, nullptr);
      }
    }
  }
}

TEST(Selection, a_fixed_order_is_there_for_everything_that_reduces) {
  const SelectionTable table = SelectionTable::defaults();
  for (int c = 0; c < kCollectiveCount; ++c) {
    if (!reduces(static_cast<Collective>(c))) continue;
    for (const uint64_t nbytes : {uint64_t{0}, uint64_t{1} << 20, uint64_t{1} << 40}) {
      for (const GroupShape group : {GroupShape{1}, {2}, {3}, {8, 4}}) {
        for (const bool even : {true, false}) {
          const Choice choice = table.choose(static_cast<Collective>(c), {nbytes, even, true}, group);
          ASSERT_NE(choice.algorithm, nullptr) << name_of(static_cast<Collective>(c));
          EXPECT_TRUE(choice.algorithm->fixed_order) << choice.algorithm->name;
        }
      }
    }
  }
}

TEST(Selection, rooted_arrays_are_cut_into_chunks_of_a_mebibyte_and_never_into_too_many) {
  const SelectionTable table = SelectionTable::defaults();
  constexpr uint64_t kMiB = 1024 * 1024;
  EXPECT_EQ(table.choose(Collective::kBroadcast, 0, {4}).split, 1u);
  EXPECT_EQ(table.choose(Collective::kBroadcast, kMiB, {4}).split, 1u);
  EXPECT_EQ(table.choose(Collective::kBroadcast, kMiB + 1, {4}).split, 2u);
  EXPECT_EQ(table.choose(Collective::kReduce, 64 * kMiB, {4}).split, 64u);
  EXPECT_EQ(table.choose(Collective::kReduce, ~uint64_t{1}, {4}).split, 4096u);
}

TEST(Selection, a_ring_over_hosts_sends_in_slices_and_within_a_host_whole_parts_or_such_as_fit_a_cache) {
  const SelectionTable table = SelectionTable::defaults();
  constexpr uint64_t kMiB = 1024 * 1024;
  EXPECT_EQ(table.choose(Collective::kAllreduce, 4 * kMiB - 1, {2, 1}).split, 1u);
  EXPECT_EQ(table.choose(Collective::kAllreduce, 4 * kMiB, {2, 1}).split, 4u);
  EXPECT_EQ(table.choose(Collective::kAllreduce, 16 * kMiB - 1, {4, 1}).split, 1u);
  EXPECT_EQ(table.choose(Collective::kAllreduce, 16 * kMiB, {4, 1}).split, 8u);
  EXPECT_EQ(table.choose(Collective::kAllreduce, 16 * kMiB, {2, 2}).split, 32u);
  EXPECT_EQ(table.choose(Collective::kAllreduce, 16 * kMiB, {4, 2}).split, 16u);
  EXPECT_EQ(chosen(table, Collective::kAllreduce, 8, {2, 2}), "recursive_doubling");
}

TEST(Selection, rows_for_many_hosts_are_for_many_hosts) {
  const SelectionTable table = SelectionTable::parse("allreduce:0-64k:ring:ranks=4:hosts=3").value();
  EXPECT_EQ(chosen(table, Collective::kAllreduce, 8, {4, 3}), "ring");
  EXPECT_EQ(chosen(table, Collective::kAllreduce, 8, {4, 2}), "recursive_doubling");
  EXPECT_EQ(chosen(table, Collective::kAllreduce, 8, {3, 3}), "recursive_doubling");
}

TEST(Selection, overrides_come_first_and_the_rest_stays) {
  const SelectionTable table =
      SelectionTable::parse("allreduce:0-64k:ring:ranks=4;broadcast:1m-inf:binomial:chunk=256k").value();
  EXPECT_EQ(chosen(table, Collective::kAllreduce, 8, {4}), "ring");
  EXPECT_EQ(chosen(table, Collective::kAllreduce, 8, {3}), "recursive_doubling");
  EXPECT_EQ(table.choose(Collective::kBroadcast, 1 << 20, {4}).split, 4u);
  EXPECT_EQ(table.choose(Collective::kBroadcast, (1 << 20) - 1, {4}).split, 1u);
}

TEST(Selection, text_reads_back_to_the_same_table) {
  for (const char* const text :
       {"", "allreduce:0-inf:ring:chunk=0", "allreduce:8-1k:ring:chunk=4k:ranks=3:hosts=2",
        "reduce:5-1k:binomial:chunk=100:ranks=9;barrier:0-inf:dissemination"}) {
    const std::string once = SelectionTable::parse(text).value().to_string();
    EXPECT_EQ(SelectionTable::parse(once).value().to_string(), once);
    EXPECT_EQ(once.rfind(text, 0), 0u) << once;
  }
}

TEST(Selection, what_cannot_be_read_is_refused_with_what_there_is) {
  for (const char* const text :
       {"x", "allreduce", "allreduce:0-1k", "gossip:0-1k:ring", "allreduce:1k-1k:ring", "allreduce:0+1k:ring",
        "allreduce:0-1x:ring", "allreduce:0-1k:recursive_doubling:chunk=1k", "allreduce:0-1k:ring:",
        "allreduce:0-1k:ring:ranks=0", "allreduce:0-1k:ring:hosts=0", "allreduce:0-99999999999999999999:ring",
        "broadcast:0-1k:binomial:chunk", "allreduce:0-99999999999g:ring"}) {
    EXPECT_EQ(SelectionTable::parse(text).status().code(), Code::kInvalidArgument) << text;
  }
  const std::string message = SelectionTable::parse("allreduce:0-1k:magic").status().message();
  EXPECT_NE(message.find("ring, recursive_doubling"), std::string::npos) << message;
}

TEST(Descriptor, the_identity_of_a_group_is_its_number_and_its_members_in_their_order) {
  const std::vector<Rank> pair{0, 1}, reversed{1, 0}, other{0, 2}, three{0, 1, 2};
  EXPECT_EQ(identity_of(1, pair), identity_of(1, std::vector<Rank>{0, 1}));
  EXPECT_NE(identity_of(1, pair), identity_of(2, pair));
  for (const std::vector<Rank>& each : {reversed, other, three})
    EXPECT_NE(identity_of(1, pair), identity_of(1, each));
}

TEST(Descriptor, the_digest_depends_on_everything_that_must_be_equal_and_on_nothing_else) {
  std::byte memory[64];
  const auto digest = [&](auto edit, uint64_t group = 1, uint64_t sequence = 2) {
    Request r;
    r.collective = Collective::kReduce;
    r.in = ConstBuffer(memory, 4, DType::kF32);
    Choice choice = SelectionTable::defaults().choose(r.collective, 16, {2});
    edit(r, choice);
    return digest_of(r, choice, group, 2, sequence);
  };
  const auto same = [](Request&, Choice&) {};
  const uint64_t usual = digest(same);
  EXPECT_NE(usual, digest(same, 2));
  EXPECT_NE(usual, digest(same, 1, 3));
  EXPECT_NE(usual, digest([](Request& r, Choice&) { r.collective = Collective::kAllreduce; }));
  EXPECT_NE(usual, digest([](Request& r, Choice&) { r.in.dtype = DType::kI32; }));
  EXPECT_NE(usual, digest([](Request& r, Choice&) { r.in.count = 5; }));
  EXPECT_NE(usual, digest([](Request& r, Choice&) { r.op = ReduceOp::kMax; }));
  EXPECT_NE(usual, digest([](Request& r, Choice&) { r.root = 1; }));
  const auto scaled = [&](double factor) {
    return digest([=](Request& r, Choice&) { r.op = {ReduceOp::kScaledSum, factor}; });
  };
  EXPECT_NE(scaled(0.5), scaled(0.25));
  EXPECT_EQ(scaled(0.5), scaled(0.5));
  EXPECT_NE(usual, digest([](Request&, Choice& c) { c.split = 2; }));
  EXPECT_NE(usual, digest([](Request&, Choice& c) {
              c.algorithm = find_algorithm(Collective::kAllreduce, "ring");
            }));
  EXPECT_EQ(usual, digest([&](Request& r, Choice&) { r.in.data = memory + 16; }));
  EXPECT_EQ(usual, digest([&](Request& r, Choice&) {
              r.out = {memory, 4, DType::kF32};
            }));  // the root has an output
  EXPECT_EQ(usual, digest([](Request& r, Choice&) { r.label = "mine"; }));
}

TEST(Descriptor, bytes_of_different_layouts_are_different_calls_and_messages) {
  std::byte memory[64];
  const Layout days{"datetime64[D]", 8, 1}, seconds{"datetime64[s]", 8, 2};
  const auto broadcast = [&](DType dtype, const Layout* layout) {
    Request r;
    r.collective = Collective::kBroadcast;
    r.out = {memory, 64, dtype, {}, layout};
    return digest_of(r, SelectionTable::defaults().choose(r.collective, 64, {2}), 1, 2, 2);
  };
  EXPECT_NE(broadcast(DType::kOpaque, &days), broadcast(DType::kOpaque, &seconds));
  EXPECT_NE(broadcast(DType::kOpaque, nullptr), broadcast(DType::kU8, nullptr));
  EXPECT_EQ(broadcast(DType::kU8, &days), broadcast(DType::kU8, &seconds));
  const auto message = [](DType dtype, const Layout* layout) {
    return digest_of_message(0, 1, 2, dtype, 8, layout);
  };
  EXPECT_NE(message(DType::kOpaque, &days), message(DType::kOpaque, &seconds));
  EXPECT_EQ(message(DType::kF32, &days), message(DType::kF32, &seconds));
}

TEST(Descriptor, the_fields_name_the_factor_and_the_owners_dtype) {
  const Layout dates{"datetime64[D]", 8, 7};
  CallRecord record;
  record.kind = CallRecord::Kind::kCollective;
  record.collective = Collective::kAllreduce;
  record.dtype = DType::kF32;
  record.count = 3;
  record.op = ReduceOp::kScaledSum;
  record.factor = 0.5;
  record.algorithm = "ring";
  EXPECT_EQ(call_text(fields_of(record)), "allreduce float32[3] scaled sum x0.5 (ring)");
  record.collective = Collective::kBroadcast;
  record.dtype = DType::kOpaque;
  record.count = 24;
  record.layout = &dates;
  record.root_or_peer = 0;
  EXPECT_EQ(call_text(fields_of(record)), "broadcast datetime64[D][3], root 0 (ring)");
}

}  // namespace
}  // namespace pc
