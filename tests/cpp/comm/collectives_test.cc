// Every transport and several tables of algorithms, through the executor suite.
#include "conformance/executor_suite.h"

namespace pc::testing {
namespace {

// Small chunks and a small array on the ring: many steps, empty chunks and short tails at little cost.
constexpr const char* kSmallPieces =
    "allreduce:0-inf:ring;broadcast:0-inf:binomial:chunk=64;reduce:0-inf:binomial:chunk=64";

std::vector<ExecutorCase> cases() {
  std::vector<ExecutorCase> all;
  for (const Over over : {Over::kInproc, Over::kTcp}) {
    for (const char* const tune : {"", kSmallPieces}) {
      for (const Rank size : {1, 2, 3, 4, 5, 8}) {
        const auto run = [=](Rank ranks, const Body& body) {
          return run_world({.over = over, .size = ranks, .timeout_s = 60, .tune = tune}, body);
        };
        all.push_back(
            {name_of(over) + (*tune != 0 ? "_small_pieces_" : "_") + std::to_string(size), size, run});
      }
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Plans, ExecutorSuite, ::testing::ValuesIn(cases()),
                         [](const ::testing::TestParamInfo<ExecutorCase>& each) { return each.param.name; });

}  // namespace
}  // namespace pc::testing
