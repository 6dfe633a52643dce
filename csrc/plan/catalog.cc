// THE table of algorithms. To add one: a file in algorithms/, its declaration and its row here. See docs/plans.md.
#include <limits>

#include "plan/plan.h"

namespace pc {

Plan ring_allreduce(const Shape& shape);
Plan recursive_doubling_allreduce(const Shape& shape);
Plan binomial_broadcast(const Shape& shape);
Plan binomial_reduce(const Shape& shape);
Plan dissemination_barrier(const Shape& shape);

namespace {

bool any_shape(const Shape& shape) {
  return shape.size >= 1 && shape.size <= std::numeric_limits<uint16_t>::max() && shape.rank >= 0 &&
         shape.rank < shape.size && shape.root >= 0 && shape.root < shape.size && shape.split >= 1;
}

constexpr Algorithm kAlgorithms[] = {
    {"ring", Collective::kAllreduce, any_shape, ring_allreduce,
     "P. Patarasuk and X. Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009",
     "2(n-1) rounds, each rank sends 2(n-1)/n of the array: best for large arrays", true},
    {"recursive_doubling", Collective::kAllreduce, any_shape, recursive_doubling_allreduce,
     "R. Thakur, R. Rabenseifner and W. Gropp, Optimization of collective communication operations in MPICH, "
     "2005",
     "log2(n) rounds (2 more if n is no power of two), each sends the whole array: best for small arrays",
     false},
    {"binomial", Collective::kBroadcast, any_shape, binomial_broadcast,
     "R. Thakur, R. Rabenseifner and W. Gropp, Optimization of collective communication operations in MPICH, "
     "2005",
     "ceil(log2 n) rounds, the root sends the array ceil(log2 n) times, in chunks that follow each other",
     true},
    {"binomial", Collective::kReduce, any_shape, binomial_reduce,
     "R. Thakur, R. Rabenseifner and W. Gropp, Optimization of collective communication operations in MPICH, "
     "2005",
     "ceil(log2 n) rounds, each rank but the root sends the array once, in chunks that follow each other",
     true},
    {"dissemination", Collective::kBarrier, any_shape, dissemination_barrier,
     "D. Hensgen, R. Finkel and U. Manber, Two algorithms for barrier synchronization, 1988",
     "ceil(log2 n) rounds, one empty message per rank and round", false},
};

}  // namespace

std::span<const Algorithm> algorithms() { return kAlgorithms; }

const Algorithm* find_algorithm(Collective collective, std::string_view name) {
  for (const Algorithm& algorithm : kAlgorithms) {
    if (algorithm.collective == collective && algorithm.name == name) return &algorithm;
  }
  return nullptr;
}

}  // namespace pc
