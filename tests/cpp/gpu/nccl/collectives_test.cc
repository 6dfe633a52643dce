// Collectives through NCCL give the results of ours: on one to four ranks, direct and composed, in
// place and not.
#include "gpu/nccl/collectives.h"

#include <complex>
#include <cstring>
#include <functional>
#include <numeric>

#include "fake_library.h"

namespace pc::nccl::testing {
namespace {

Request made(Collective collective, const ConstBuffer& in, const Buffer& out, Reduction op = {},
             Rank root = 0) {
  Request request;
  request.collective = collective;
  request.in = in;
  request.out = out;
  request.op = op;
  request.root = root;
  return request;
}

struct World {
  const char* path;
  Rank size;
};

class NcclCollectives : public ::testing::TestWithParam<World> {
 protected:
  NcclCollectives() : library(GetParam().path), size(GetParam().size) {
    ranks = join_all({library.shared_api(), &clock}, size, soon());
  }
  ~NcclCollectives() override {
    for (const auto& each : ranks) EXPECT_TRUE(each->close(soon()).is_ok());
  }
  WaitContext soon() { return WaitContext{clock.in(60)}; }
  bool composes() const { return !library.api().supports(Feature::kAlltoall); }

  template <class T>
  static ConstBuffer in(const std::vector<T>& data, DType dtype, std::size_t first = 0,
                        std::size_t count = SIZE_MAX) {
    const std::size_t scale = sizeof(T) / size_of(dtype);
    return {reinterpret_cast<const std::byte*>(data.data() + first),
            std::min(count, data.size() - first) * scale, dtype};
  }
  template <class T>
  static Buffer out(std::vector<T>& data, DType dtype, std::size_t first = 0, std::size_t count = SIZE_MAX) {
    const ConstBuffer same = in(data, dtype, first, count);
    return {const_cast<std::byte*>(same.data), same.count, dtype};
  }
  // Issues each rank's request, one after the other. The last rank completes all of them.
  void all(const std::function<Request(Rank)>& request_of) {
    for (Rank rank = 0; rank < size; ++rank) {
      const Request request = request_of(rank);
      const Status status = issue(*ranks[static_cast<std::size_t>(rank)], request, &barrier_word, soon());
      EXPECT_TRUE(status.is_ok()) << name_of(request.collective) << ": " << status.to_string();
    }
  }
  std::vector<std::vector<int>> arrays(const std::function<std::size_t(Rank)>& count) {
    std::vector<std::vector<int>> data;
    for (Rank rank = 0; rank < size; ++rank) {
      data.emplace_back(count(rank));
      std::iota(data.back().begin(), data.back().end(), rank * 1000);
    }
    return data;
  }
  std::vector<std::vector<int>> equal_arrays(std::size_t count) {
    return arrays([&](Rank) { return count; });
  }
  // Parts of different sizes, one of them empty: 2, 0, 3, 1.
  std::vector<uint64_t> uneven() const {
    const uint64_t counts[] = {2, 0, 3, 1};
    return {counts, counts + size};
  }
  static std::size_t begin_of(const std::vector<uint64_t>& counts, Rank rank) {
    return std::accumulate(counts.begin(), counts.begin() + rank, std::size_t{0});
  }
  std::size_t ranks_here() const { return static_cast<std::size_t>(size); }

  StepClock clock;
  FakeLibrary library;
  Rank size;
  std::vector<std::unique_ptr<Communicator>> ranks;
  int barrier_word = 0;
};

constexpr DType kInt = DType::kI32;

// Returns the result of combining the ranks' values 1, 2, 3 ... at each index.
template <class T>
std::vector<T> reduced_by(NcclCollectives*, const std::vector<std::vector<T>>& data,
                          const std::function<T(T, T)>& op) {
  std::vector<T> result = data[0];
  for (std::size_t r = 1; r < data.size(); ++r)
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = op(result[i], data[r][i]);
  return result;
}

TEST_P(NcclCollectives, allreduce_gives_all_the_same_in_place_and_not) {
  const auto data = equal_arrays(5);
  const auto sum = reduced_by<int>(this, data, std::plus<int>());
  const auto most = reduced_by<int>(this, data, [](int a, int b) { return std::max(a, b); });
  auto results = equal_arrays(5), places = data;
  all([&](Rank r) {
    return made(Collective::kAllreduce, in(data[static_cast<std::size_t>(r)], kInt),
                out(results[static_cast<std::size_t>(r)], kInt), ReduceOp::kSum);
  });
  all([&](Rank r) {
    auto& place = places[static_cast<std::size_t>(r)];
    return made(Collective::kAllreduce, in(place, kInt), out(place, kInt), ReduceOp::kMax);
  });
  for (const auto& each : results) EXPECT_EQ(each, sum);
  for (const auto& each : places) EXPECT_EQ(each, most);
}

TEST_P(NcclCollectives, averages_and_scaled_sums_of_floats_and_complex_numbers) {
  using Number = std::complex<double>;
  std::vector<std::vector<Number>> averages, sums;
  for (Rank r = 0; r < size; ++r) {
    averages.push_back({Number(r, 4 * r), Number(-r, 1)});
    sums.push_back(averages.back());
  }
  all([&](Rank r) {
    auto& place = averages[static_cast<std::size_t>(r)];
    return made(Collective::kAllreduce, in(place, DType::kC128), out(place, DType::kC128), ReduceOp::kAvg);
  });
  all([&](Rank r) {
    auto& place = sums[static_cast<std::size_t>(r)];
    return made(Collective::kAllreduce, in(place, DType::kC128), out(place, DType::kC128),
                {ReduceOp::kScaledSum, 0.25});
  });
  const double n = size, total = n * (n - 1) / 2;
  for (std::size_t r = 0; r < ranks_here(); ++r) {
    EXPECT_NEAR(averages[r][0].real(), total / n, 1e-12);
    EXPECT_NEAR(averages[r][0].imag(), 4 * total / n, 1e-12);
    EXPECT_EQ(sums[r], (std::vector<Number>{Number(total, 4 * total) * 0.25, Number(-total, n) * 0.25}));
  }
}

// Each rank's array is split in two, with a gap between.
TEST_P(NcclCollectives, a_list_is_one_group_of_as_many_calls) {
  const auto data = equal_arrays(6);
  const auto sum = reduced_by<int>(this, data, std::plus<int>());
  auto sums = data, copies = data, results = data;
  std::vector<IoVec> lists(3 * ranks_here());
  const auto list_of = [&](std::vector<int>& array, std::size_t place) {
    IoVec& list = lists[place] = IoVec();
    list.add(reinterpret_cast<std::byte*>(array.data()), 2 * sizeof(int));
    list.add(reinterpret_cast<std::byte*>(array.data() + 3), 3 * sizeof(int));
    return Buffer{nullptr, 5, kInt, {}, nullptr, &list};
  };
  all([&](Rank r) {
    const Buffer list = list_of(sums[static_cast<std::size_t>(r)], static_cast<std::size_t>(r));
    return made(Collective::kAllreduce, list, list);
  });
  const std::string calls = library.calls_of_newest();
  EXPECT_TRUE(calls.ends_with("[AllReduce AllReduce]")) << calls;
  all([&](Rank r) {
    const Buffer list = list_of(copies[static_cast<std::size_t>(r)], static_cast<std::size_t>(r));
    Request request = made(Collective::kBroadcast, {}, list);
    request.root = size - 1;
    if (r == request.root) request.in = list;
    return request;
  });
  all([&](Rank r) {
    const Buffer list = list_of(results[static_cast<std::size_t>(r)], static_cast<std::size_t>(r));
    return made(Collective::kReduce, list, r == 0 ? list : Buffer(), ReduceOp::kSum);
  });
  for (std::size_t r = 0; r < ranks_here(); ++r) {
    for (std::size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(sums[r][i], i == 2 ? data[r][i] : sum[i]);
      EXPECT_EQ(copies[r][i], i == 2 ? data[r][i] : data.back()[i]);
      EXPECT_EQ(results[r][i], i == 2 || r != 0 ? data[r][i] : sum[i]);
    }
  }
}

TEST_P(NcclCollectives, bools_are_combined_as_truth) {
  std::vector<std::vector<uint8_t>> any, every;
  for (Rank r = 0; r < size; ++r) {
    any.push_back({0, static_cast<uint8_t>(r == 0)});
    every.push_back({1, static_cast<uint8_t>(r != 0)});
  }
  all([&](Rank r) {
    auto& place = any[static_cast<std::size_t>(r)];
    return made(Collective::kAllreduce, in(place, DType::kBool), out(place, DType::kBool), ReduceOp::kSum);
  });
  all([&](Rank r) {
    auto& place = every[static_cast<std::size_t>(r)];
    return made(Collective::kAllreduce, in(place, DType::kBool), out(place, DType::kBool), ReduceOp::kProd);
  });
  for (std::size_t r = 0; r < ranks_here(); ++r) {
    EXPECT_EQ(any[r], (std::vector<uint8_t>{0, 1}));
    EXPECT_EQ(every[r], (std::vector<uint8_t>{1, 0}));
  }
}

TEST_P(NcclCollectives, broadcast_and_reduce_from_and_to_any_root) {
  for (Rank root = 0; root < size; ++root) {
    const auto data = equal_arrays(3);
    const auto sum = reduced_by<int>(this, data, std::plus<int>());
    auto copies = equal_arrays(3), results = equal_arrays(3);
    all([&](Rank r) {
      const std::size_t at = static_cast<std::size_t>(r);
      Request request = made(Collective::kBroadcast, {}, out(copies[at], kInt));
      if (r == root) request.in = in(data[at], kInt);
      request.root = root;
      return request;
    });
    all([&](Rank r) {
      const std::size_t at = static_cast<std::size_t>(r);
      Request request = made(Collective::kReduce, in(data[at], kInt), {}, ReduceOp::kSum, root);
      if (r == root) request.out = out(results[at], kInt);
      return request;
    });
    for (std::size_t r = 0; r < ranks_here(); ++r) {
      EXPECT_EQ(copies[r], data[static_cast<std::size_t>(root)]);
      EXPECT_EQ(results[r], static_cast<Rank>(r) == root ? sum : data[r]);
    }
  }
}

TEST_P(NcclCollectives, allgather_joins_equal_parts_and_uneven_ones_in_place_and_not) {
  for (const bool even : {true, false}) {
    for (const bool in_place : {true, false}) {
      const std::vector<uint64_t> counts = even ? std::vector<uint64_t>(ranks_here(), 3) : uneven();
      const auto parts = arrays([&](Rank r) { return counts[static_cast<std::size_t>(r)]; });
      std::vector<int> joined;
      for (const auto& each : parts) joined.insert(joined.end(), each.begin(), each.end());
      std::vector<std::vector<int>> wholes(ranks_here(), std::vector<int>(joined.size(), -1));
      all([&](Rank r) {
        const std::size_t at = static_cast<std::size_t>(r), begin = begin_of(counts, r);
        if (in_place) {
          std::copy(parts[at].begin(), parts[at].end(),
                    wholes[at].begin() + static_cast<std::ptrdiff_t>(begin));
        }
        Request request = made(Collective::kAllgather,
                               in_place ? in(wholes[at], kInt, begin, counts[at]) : in(parts[at], kInt),
                               out(wholes[at], kInt));
        if (!even) request.counts = counts;
        return request;
      });
      for (const auto& each : wholes) EXPECT_EQ(each, joined) << even << in_place;
    }
  }
}

TEST_P(NcclCollectives, reduce_scatter_cuts_equal_parts_and_uneven_ones_in_place_and_not) {
  for (const bool even : {true, false}) {
    for (const bool in_place : {true, false}) {
      const std::vector<uint64_t> counts = even ? std::vector<uint64_t>(ranks_here(), 3) : uneven();
      const std::size_t total = begin_of(counts, size);
      auto wholes = equal_arrays(total);
      const auto sum = reduced_by<int>(this, wholes, std::plus<int>());
      auto parts = arrays([&](Rank r) { return counts[static_cast<std::size_t>(r)]; });
      all([&](Rank r) {
        const std::size_t at = static_cast<std::size_t>(r), begin = begin_of(counts, r);
        Request request =
            made(Collective::kReduceScatter, in(wholes[at], kInt),
                 in_place ? out(wholes[at], kInt, begin, counts[at]) : out(parts[at], kInt), ReduceOp::kSum);
        if (!even) request.counts = counts;
        return request;
      });
      for (Rank r = 0; r < size; ++r) {
        const std::size_t at = static_cast<std::size_t>(r), begin = begin_of(counts, r);
        const auto& where = in_place ? wholes[at] : parts[at];
        for (std::size_t i = 0; i < counts[at]; ++i)
          EXPECT_EQ(where[(in_place ? begin : 0) + i], sum[begin + i]) << even << in_place;
      }
    }
  }
}

TEST_P(NcclCollectives, alltoall_sends_each_its_part) {
  for (const bool even : {true, false}) {
    // The number of elements from rank s to rank r.
    const auto count = [&](Rank s, Rank r) {
      return even ? std::size_t{2} : static_cast<std::size_t>((2 * s + r) % 3);
    };
    std::vector<std::vector<uint64_t>> sent(ranks_here()), received(ranks_here());
    std::vector<std::vector<int>> data(ranks_here()), expected(ranks_here()), results(ranks_here());
    for (Rank s = 0; s < size; ++s) {
      for (Rank r = 0; r < size; ++r) {
        const std::size_t from = static_cast<std::size_t>(s), to = static_cast<std::size_t>(r);
        sent[from].push_back(count(s, r));
        received[to].push_back(count(s, r));
        for (std::size_t i = 0; i < count(s, r); ++i) {
          data[from].push_back(s * 100 + r * 10 + static_cast<int>(i));
          expected[to].push_back(data[from].back());
        }
      }
    }
    all([&](Rank r) {
      const std::size_t at = static_cast<std::size_t>(r);
      results[at].resize(expected[at].size());
      Request request = made(Collective::kAlltoall, in(data[at], kInt), out(results[at], kInt));
      if (!even) {
        request.counts = sent[at];
        request.recv_counts = received[at];
      }
      return request;
    });
    EXPECT_EQ(results, expected) << even;
  }
}

TEST_P(NcclCollectives, gather_and_scatter_equal_parts_and_uneven_ones_in_place_and_not) {
  for (int kind = 0; kind < 4 * size; ++kind) {
    const bool even = (kind & 1) != 0, in_place = (kind & 2) != 0;
    const Rank root = kind / 4;
    const std::size_t at_root = static_cast<std::size_t>(root);
    const std::vector<uint64_t> counts = even ? std::vector<uint64_t>(ranks_here(), 3) : uneven();
    const auto parts = arrays([&](Rank r) { return counts[static_cast<std::size_t>(r)]; });
    std::vector<int> joined;
    for (const auto& each : parts) joined.insert(joined.end(), each.begin(), each.end());
    std::vector<int> whole(joined.size(), -1), source = joined;
    const std::size_t begin = begin_of(counts, root);
    if (in_place)
      std::copy(parts[at_root].begin(), parts[at_root].end(),
                whole.begin() + static_cast<std::ptrdiff_t>(begin));
    auto pieces = parts;
    for (auto& each : pieces) std::fill(each.begin(), each.end(), -1);
    const auto request_of = [&](Collective collective, Rank r) {
      const std::size_t at = static_cast<std::size_t>(r);
      const bool gathers = collective == Collective::kGather, own = in_place && r == root;
      Request request;
      request.collective = collective;
      request.root = root;
      if (gathers) {
        request.in = own ? in(whole, kInt, begin, counts[at]) : in(parts[at], kInt);
        if (r == root) request.out = out(whole, kInt);
      } else {
        request.out = own ? out(source, kInt, begin, counts[at]) : out(pieces[at], kInt);
        if (r == root) request.in = in(source, kInt);
      }
      if (!even) request.counts = counts;
      return request;
    };
    all([&](Rank r) { return request_of(Collective::kGather, r); });
    all([&](Rank r) { return request_of(Collective::kScatter, r); });
    EXPECT_EQ(whole, joined) << kind;
    EXPECT_EQ(source, joined) << kind;
    for (Rank r = 0; r < size; ++r) {
      if (!in_place || r != root) {
        EXPECT_EQ(pieces[static_cast<std::size_t>(r)], parts[static_cast<std::size_t>(r)]) << kind;
      }
    }
  }
}

TEST_P(NcclCollectives, a_root_sends_itself_nothing_in_place) {
  if (!composes()) return;  // NCCL handles that itself
  std::vector<int> whole(ranks_here());
  Communicator& root = *ranks.back();
  Request gather = made(Collective::kGather, in(whole, kInt, ranks_here() - 1, 1), out(whole, kInt));
  Request scatter = made(Collective::kScatter, in(whole, kInt), out(whole, kInt, ranks_here() - 1, 1));
  for (Request* const each : {&gather, &scatter}) {
    each->root = size - 1;
    EXPECT_TRUE(issue(root, *each, nullptr, soon()).is_ok());
  }
  const std::string self = "(" + std::to_string(size - 1) + ")";
  EXPECT_EQ(library.calls_of_newest().find("Send" + self), std::string::npos);
  EXPECT_EQ(library.calls_of_newest().find("Recv" + self), std::string::npos);
}

TEST_P(NcclCollectives, messages_go_round_a_ring) {
  const auto data = equal_arrays(4);
  auto results = equal_arrays(4);
  for (Rank r = 0; r < size; ++r) {
    const std::size_t at = static_cast<std::size_t>(r);
    EXPECT_TRUE(issue_sendrecv(*ranks[at], in(data[at], kInt), (r + 1) % size, out(results[at], kInt),
                               (r + size - 1) % size, nullptr, soon())
                    .is_ok());
  }
  for (std::size_t r = 0; r < ranks_here(); ++r)
    EXPECT_EQ(results[r], data[(r + ranks_here() - 1) % ranks_here()]);
  if (size < 2) return;
  EXPECT_TRUE(issue_send(*ranks[0], in(data[0], kInt), 1, nullptr, soon()).is_ok());
  EXPECT_TRUE(issue_recv(*ranks[1], out(results[1], kInt), 0, nullptr, soon()).is_ok());
  EXPECT_EQ(results[1], data[0]);
  EXPECT_EQ(issue_send(*ranks[0], in(data[0], kInt), size, nullptr, soon()).code(), Code::kInvalidArgument);
}

TEST_P(NcclCollectives, each_is_one_call_where_nccl_has_it_and_one_group_where_not) {
  auto data = equal_arrays(ranks_here());
  auto results = equal_arrays(ranks_here());
  const auto request = [&](Collective collective, Rank r) {
    const std::size_t at = static_cast<std::size_t>(r);
    return made(collective, in(data[at], kInt), out(results[at], kInt));
  };
  all([&](Rank r) { return request(Collective::kAlltoall, r); });
  all([&](Rank r) { return request(Collective::kBarrier, r); });
  all([&](Rank r) {
    Request part = request(Collective::kGather, r);
    part.in.count = 1;
    if (r != 0) part.out = {};
    return part;
  });
  std::string expected = "child(" + std::to_string(size - 1) + "/" + std::to_string(size) + ")";
  if (composes()) {
    std::string sends, recvs;
    for (Rank r = 0; r < size; ++r) sends += (r > 0 ? " Send(" : "Send(") + std::to_string(r) + ")";
    for (Rank r = 0; r < size; ++r) recvs += " Recv(" + std::to_string(r) + ")";
    expected += " [" + sends + recvs + "] [AllReduce] [Send(0)" + (size == 1 ? " Recv(0)]" : "]");
  } else {
    expected += " [AlltoAll] [AllReduce] [Gather]";
  }
  EXPECT_EQ(library.calls_of_newest(), expected);
}

TEST_P(NcclCollectives, an_empty_array_issues_nothing_and_a_failed_communicator_says_so_all_the_same) {
  const std::string before = library.calls_of_newest();
  for (const Collective collective :
       {Collective::kAllreduce, Collective::kBroadcast, Collective::kReduce, Collective::kAllgather,
        Collective::kReduceScatter, Collective::kAlltoall, Collective::kGather, Collective::kScatter}) {
    all([&](Rank) {
      Request nothing;
      nothing.collective = collective;
      nothing.in.dtype = nothing.out.dtype = kInt;
      return nothing;
    });
  }
  EXPECT_EQ(library.calls_of_newest(), before);
  void* newest = nullptr;
  library->last_comm(&newest);
  library->async_error(newest, 6);
  Request nothing;
  nothing.collective = Collective::kAllreduce;
  nothing.in.dtype = nothing.out.dtype = kInt;
  Communicator& last = *ranks.back();
  EXPECT_EQ(issue(last, nothing, nullptr, soon()).code(), Code::kPeerFailure);
  EXPECT_TRUE(last.abort(Status()).is_ok());
  ranks.pop_back();
}

TEST_P(NcclCollectives, what_it_cannot_do_is_refused_before_anything_is_issued) {
  const std::string before = library.calls_of_newest();
  std::vector<int> data(4, 1);
  IoVec pieces;
  pieces.add(reinterpret_cast<std::byte*>(data.data()), 16);
  Request scan = made(Collective::kScan, in(data, kInt), out(data, kInt));
  Request list = made(Collective::kAlltoall, {nullptr, 4, kInt, {}, nullptr, &pieces}, out(data, kInt));
  Request ordered = made(Collective::kAllreduce, in(data, kInt), out(data, kInt));
  ordered.fixed_order = true;
  Request bits = made(Collective::kAllreduce, in(data, kInt), out(data, kInt), ReduceOp::kBXor);
  for (const Request& each : {scan, list, ordered, bits}) {
    EXPECT_EQ(can_issue(each).code(), Code::kUnsupported);
    const Status refused = issue(*ranks.back(), each, nullptr, soon());
    EXPECT_EQ(refused.code(), Code::kUnsupported);
    EXPECT_EQ(refused.message(), can_issue(each).message());
  }
  EXPECT_EQ(library.calls_of_newest(), before);
}

TEST_P(NcclCollectives, a_refused_call_of_a_scaled_sum_leaves_no_operation_behind) {
  std::vector<float> data(2, 1);
  const Request request =
      made(Collective::kAllreduce, in(data, DType::kF32), out(data, DType::kF32), {ReduceOp::kScaledSum, 3});
  library->fail_next("AllReduce", 4, 0);
  EXPECT_EQ(issue(*ranks.back(), request, nullptr, soon()).code(), Code::kInvalidArgument);
  const std::string calls = library.calls_of_newest();
  EXPECT_NE(calls.find("CreateOp"), std::string::npos);
  EXPECT_NE(calls.find("DestroyOp"), std::string::npos);
}

std::string name_of_world(const ::testing::TestParamInfo<World>& each) {
  const bool old = std::string_view(each.param.path) == FAKE_NCCL_21803;
  return (old ? "composed_" : "direct_") + std::to_string(each.param.size);
}
INSTANTIATE_TEST_SUITE_P(Worlds, NcclCollectives,
                         ::testing::Values(World{FAKE_NCCL_21803, 1}, World{FAKE_NCCL_21803, 2},
                                           World{FAKE_NCCL_21803, 3}, World{FAKE_NCCL_21803, 4},
                                           World{FAKE_NCCL_22809, 1}, World{FAKE_NCCL_22809, 2},
                                           World{FAKE_NCCL_22809, 3}, World{FAKE_NCCL_22809, 4}),
                         name_of_world);

// Ranks as in real use: each in a thread of its own, each in progress for a while.
TEST(NcclCollectivesInThreads, ranks_that_start_together_end_together) {
  StepClock clock;
  FakeLibrary library(FAKE_NCCL_22703);
  library->init_waits_for_all(1);
  library->in_progress(3);
  constexpr Rank kRanks = 3;
  const UniqueId id = make_unique_id(library.api()).value();
  std::vector<std::vector<int>> data(kRanks, std::vector<int>(100, 1));
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const WaitContext soon{clock.in(60)};
      const auto communicator =
          Communicator::init({library.shared_api(), &clock}, {id, rank, kRanks}, {}, soon).value();
      std::vector<int>& own = data[static_cast<std::size_t>(rank)];
      const Buffer place{reinterpret_cast<std::byte*>(own.data()), own.size(), kInt};
      EXPECT_TRUE(
          issue(*communicator, made(Collective::kAllreduce, place, place, ReduceOp::kSum), nullptr, soon)
              .is_ok());
      EXPECT_TRUE(communicator->close(soon).is_ok());
    });
  }
  for (std::thread& each : threads) each.join();
  for (const auto& each : data) EXPECT_EQ(each, std::vector<int>(100, kRanks));
}

}  // namespace
}  // namespace pc::nccl::testing
