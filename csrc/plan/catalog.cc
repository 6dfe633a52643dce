// The table of all algorithms. To add one, add a file in algorithms/, its declaration and its row
// here. See docs/plans.md.
#include <bit>

#include "plan/contracts.h"

namespace pc {

Plan ring_allreduce(const Shape& shape);
Plan recursive_doubling_allreduce(const Shape& shape);
Plan rabenseifner_allreduce(const Shape& shape);
Plan double_binary_tree_allreduce(const Shape& shape);
Plan binomial_broadcast(const Shape& shape);
Plan binomial_reduce(const Shape& shape);
Plan dissemination_barrier(const Shape& shape);
Plan ring_allgather(const Shape& shape);
Plan recursive_doubling_allgather(const Shape& shape);
Plan bruck_allgather(const Shape& shape);
Plan pairwise_reduce_scatter(const Shape& shape);
Plan pairwise_tree_reduce_scatter(const Shape& shape);
Plan ring_reduce_scatter(const Shape& shape);
Plan recursive_halving_reduce_scatter(const Shape& shape);
Plan pairwise_alltoall(const Shape& shape);
Plan bruck_alltoall(const Shape& shape);
Plan linear_gather(const Shape& shape);
Plan binomial_gather(const Shape& shape);
Plan linear_scatter(const Shape& shape);
Plan binomial_scatter(const Shape& shape);
Plan chain_scan(const Shape& shape);
Plan recursive_doubling_scan(const Shape& shape);
Plan chain_exscan(const Shape& shape);
Plan recursive_doubling_exscan(const Shape& shape);

namespace {

bool any_shape(const Shape& shape) {
  return shape.size >= 1 && shape.size <= kMostRanks && shape.rank >= 0 && shape.rank < shape.size &&
         shape.root >= 0 && shape.root < shape.size && shape.split >= 1;
}
bool whole_parts(const Shape& shape) { return any_shape(shape) && shape.split == 1; }
bool power_of_two(const Shape& shape) {
  return whole_parts(shape) && std::has_single_bit(static_cast<uint32_t>(shape.size));
}
bool equal_parts(const Shape& shape) { return any_shape(shape) && packs(shape); }
bool power_of_two_equal_parts(const Shape& shape) { return power_of_two(shape) && equal_parts(shape); }

constexpr std::string_view kThakur =
    "R. Thakur, R. Rabenseifner and W. Gropp, Optimization of collective communication operations in MPICH, "
    "2005";
constexpr std::string_view kPatarasuk =
    "P. Patarasuk and X. Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009";
constexpr std::string_view kBruck =
    "J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal and D. Weathersby, Efficient algorithms for all-to-all "
    "communications "
    "in multiport message-passing systems, 1997";
constexpr std::string_view kHillis = "W. D. Hillis and G. L. Steele, Data parallel algorithms, 1986";
constexpr std::string_view kMpi = "MPI: A Message-Passing Interface Standard 4.1, chapter 6";

constexpr Algorithm kAlgorithms[] = {
    {"ring", Collective::kAllreduce, any_shape, ring_allreduce, kPatarasuk,
     "2(n-1) rounds, each rank sends 2(n-1)/n of the array: best for large arrays", Pipelines::kParts},
    {"recursive_doubling", Collective::kAllreduce, any_shape, recursive_doubling_allreduce, kThakur,
     "log2(n) rounds (2 more if n is no power of two), each sends the whole array: best for small arrays",
     Pipelines::kNot, true},
    {"rabenseifner", Collective::kAllreduce, any_shape, rabenseifner_allreduce,
     "R. Rabenseifner, Optimization of collective reduction operations, ICCS 2004",
     "2 log2(n) rounds (2 more if n is no power of two), each rank sends 2(n-1)/n of the array: between the "
     "two",
     Pipelines::kNot, true},
    {"double_binary_tree", Collective::kAllreduce, any_shape, double_binary_tree_allreduce,
     "P. Sanders, J. Speck and J. L. Traeff, Two-tree algorithms for full bandwidth broadcast, reduction and "
     "scan, 2009",
     "about 2 log2(n) rounds, each rank sends twice the array, in chunks that follow each other: for many "
     "ranks",
     Pipelines::kArray},
    {"binomial", Collective::kBroadcast, any_shape, binomial_broadcast, kThakur,
     "ceil(log2 n) rounds, the root sends the array ceil(log2 n) times, in chunks that follow each other",
     Pipelines::kArray},
    {"binomial", Collective::kReduce, any_shape, binomial_reduce, kThakur,
     "ceil(log2 n) rounds, each rank but the root sends the array once, in chunks that follow each other",
     Pipelines::kArray, true},
    {"dissemination", Collective::kBarrier, any_shape, dissemination_barrier,
     "D. Hensgen, R. Finkel and U. Manber, Two algorithms for barrier synchronization, 1988",
     "ceil(log2 n) rounds, one empty message per rank and round", Pipelines::kNot},
    {"ring", Collective::kAllgather, any_shape, ring_allgather, kPatarasuk,
     "n-1 rounds, each rank sends n-1 parts, to the next rank only: best for large parts", Pipelines::kParts},
    {"recursive_doubling", Collective::kAllgather, power_of_two, recursive_doubling_allgather, kThakur,
     "log2(n) rounds, each rank sends n-1 parts: for small parts on a power of two of ranks",
     Pipelines::kNot},
    {"bruck", Collective::kAllgather, whole_parts, bruck_allgather, kBruck,
     "ceil(log2 n) rounds, each rank sends n-1 parts: for small parts", Pipelines::kNot},
    {"pairwise", Collective::kReduceScatter, any_shape, pairwise_reduce_scatter, kThakur,
     "one round of n-1 messages, each rank sends n-1 parts", Pipelines::kParts},
    {"pairwise_tree", Collective::kReduceScatter, any_shape, pairwise_tree_reduce_scatter, kThakur,
     "one round of n-1 messages, each rank sends n-1 parts and combines what comes near ranks first: where a "
     "fixed order is asked for",
     Pipelines::kParts, true},
    {"ring", Collective::kReduceScatter, any_shape, ring_reduce_scatter, kPatarasuk,
     "n-1 rounds, each rank sends n-1 parts, to the next rank only: for large parts on many hosts",
     Pipelines::kParts},
    {"recursive_halving", Collective::kReduceScatter, power_of_two_equal_parts,
     recursive_halving_reduce_scatter, kThakur,
     "log2(n) rounds, each rank sends n-1 parts: for small equal parts on a power of two of ranks",
     Pipelines::kNot},
    {"pairwise", Collective::kAlltoall, whole_parts, pairwise_alltoall, kThakur,
     "one round of n-1 messages, each rank sends n-1 parts", Pipelines::kNot},
    {"bruck", Collective::kAlltoall, equal_parts, bruck_alltoall, kBruck,
     "ceil(log2 n) rounds, each rank sends about n/2 parts in each: for small equal parts on many ranks",
     Pipelines::kNot},
    {"linear", Collective::kGather, whole_parts, linear_gather, kMpi,
     "one round, every rank sends its part to the root", Pipelines::kNot},
    {"binomial", Collective::kGather, whole_parts, binomial_gather, kThakur,
     "ceil(log2 n) rounds, the root receives ceil(log2 n) messages: for small parts on many ranks",
     Pipelines::kNot},
    {"linear", Collective::kScatter, whole_parts, linear_scatter, kMpi,
     "one round, the root sends every rank its part", Pipelines::kNot},
    {"binomial", Collective::kScatter, whole_parts, binomial_scatter, kThakur,
     "ceil(log2 n) rounds, the root sends ceil(log2 n) messages: for small parts on many ranks",
     Pipelines::kNot},
    {"chain", Collective::kScan, any_shape, chain_scan, kMpi,
     "n-1 rounds, each rank sends the array once, in chunks that follow each other: for large arrays",
     Pipelines::kArray},
    {"recursive_doubling", Collective::kScan, any_shape, recursive_doubling_scan, kHillis,
     "ceil(log2 n) rounds, each sends the whole array: for small arrays", Pipelines::kNot, true},
    {"chain", Collective::kExscan, any_shape, chain_exscan, kMpi,
     "n-1 rounds, each rank sends the array once, in chunks that follow each other: for large arrays",
     Pipelines::kArray},
    {"recursive_doubling", Collective::kExscan, any_shape, recursive_doubling_exscan, kHillis,
     "1 + ceil(log2(n-1)) rounds, each sends the whole array: for small arrays", Pipelines::kNot, true},
};

}  // namespace

std::span<const Algorithm> algorithms() { return kAlgorithms; }

std::array<Algorithm, kCollectiveCount> algorithms_without_plan(std::string_view name,
                                                                std::string_view summary,
                                                                std::string_view source, bool fixed_order) {
  std::array<Algorithm, kCollectiveCount> rows{};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = {.name = name,
               .collective = static_cast<Collective>(i),
               .supports = [](const Shape&) { return true; },
               .build = nullptr,
               .source = source,
               .summary = summary,
               .pipelines = Pipelines::kNot,
               .fixed_order = fixed_order};
  }
  return rows;
}

const Algorithm* find_algorithm(Collective collective, std::string_view name) {
  for (const Algorithm& algorithm : kAlgorithms) {
    if (algorithm.collective == collective && algorithm.name == name) return &algorithm;
  }
  return nullptr;
}

}  // namespace pc
