// Every transport and several tables of algorithms, through the executor suite.
#include "conformance/executor_suite.h"

namespace pc::testing {
namespace {

// Small chunks and a small ring buffer: many steps, empty chunks and short tails at little cost.
constexpr const char* kSmallPieces =
    "allreduce:0-inf:ring;broadcast:0-inf:binomial:chunk=1k;reduce:0-inf:binomial:chunk=1k;allgather:0-inf:"
    "ring:chunk=2k;"
    "reduce_scatter:0-inf:ring:chunk=2k;scan:0-inf:chain:chunk=2k;exscan:0-inf:chain:chunk=2k;alltoall:0-inf:"
    "pairwise;"
    "gather:0-inf:linear;scatter:0-inf:linear";
// Algorithms for few or many ranks, and for large or small arrays.
constexpr const char* kOthers =
    "allreduce:0-inf:rabenseifner;allgather:0-inf:recursive_doubling;allgather:0-inf:bruck;"
    "reduce_scatter:0-inf:recursive_halving;reduce_scatter:0-inf:pairwise:chunk=2k;scan:0-inf:recursive_"
    "doubling;"
    "exscan:0-inf:recursive_doubling;alltoall:0-inf:bruck;gather:0-inf:binomial;scatter:0-inf:binomial";
constexpr const char* kTrees =
    "allreduce:0-inf:double_binary_tree:chunk=2k;reduce_scatter:0-inf:pairwise_tree:chunk=2k";

std::vector<ExecutorCase> cases() {
  std::vector<ExecutorCase> all;
  for (const Over over : {Over::kInproc, Over::kTcp}) {
    for (const auto& [tune, of] :
         {std::pair{"", ""}, {kSmallPieces, "small_pieces_"}, {kOthers, "others_"}, {kTrees, "trees_"}}) {
      for (const Rank size : {1, 2, 3, 4, 5, 8}) {
        const std::string rows = tune;
        const auto run = [=](Rank ranks, const Body& body) {
          return run_world({.over = over, .size = ranks, .timeout_s = 60, .tune = rows}, body);
        };
        all.push_back({name_of(over) + "_" + of + std::to_string(size), size, run});
      }
    }
  }
  for (const Rank size : {2, 3, 4, 5, 8}) {
    const auto run = [](Rank ranks, const Body& body) {
      return run_world({.over = Over::kShared, .size = ranks, .timeout_s = 60}, body);
    };
    all.push_back({"shared_" + std::to_string(size), size, run});
  }
  for (const std::vector<Rank>& domains : std::vector<std::vector<Rank>>{{2, 2}, {1, 3}, {2, 1, 2}}) {
    std::string name = "domains";
    Rank size = 0;
    for (const Rank of : domains) {
      name += "_" + std::to_string(of);
      size += of;
    }
    const auto run = [domains](Rank ranks, const Body& body) {
      return run_world({.over = Over::kDomains, .size = ranks, .domains = domains, .timeout_s = 60}, body);
    };
    all.push_back({name, size, run});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Plans, ExecutorSuite, ::testing::ValuesIn(cases()),
                         [](const ::testing::TestParamInfo<ExecutorCase>& each) { return each.param.name; });

}  // namespace
}  // namespace pc::testing
