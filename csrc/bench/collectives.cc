#include "bench/collectives.h"

#include <array>

#include "bench/patterns.h"

namespace pc::bench {
namespace {

// ---- sizes

Parts whole(Rank) { return {1, 1}; }
Parts gathers(Rank size) { return {1, size}; }
Parts scatters(Rank size) { return {size, 1}; }
Parts exchanges(Rank size) { return {size, size}; }

// ---- bandwidths

constexpr BusBandwidth kNothing = {[](Rank) { return 0.0; }, "0"};
constexpr BusBandwidth kBytes = {[](Rank) { return 1.0; }, "bytes / time"};
constexpr BusBandwidth kAllButOwn = {[](Rank size) { return 1.0 * (size - 1) / size; },
                                     "(n - 1) / n * bytes / time"};
constexpr BusBandwidth kThereAndBack = {[](Rank size) { return 2.0 * (size - 1) / size; },
                                        "2 (n - 1) / n * bytes / time"};

// Makes each part different, so that a part at the position of another part is detected.
uint64_t shifted(uint64_t i, Rank part) { return i + 131 * static_cast<uint64_t>(part); }

// ---- expected results

double roots_mark(const Asked& a, const Element& e) { return mark(a.root, shifted(e.i, e.part)); }
double all_reduced(const Asked& a, const Element& e) { return reduced(a.op, e.size, e.i); }
double part_reduced(const Asked& a, const Element& e) { return reduced(a.op, e.size, shifted(e.i, e.rank)); }
template <Rank more>  // more = 1 includes this rank's own contribution
double reduced_until_own(const Asked& a, const Element& e) {
  return reduced_until(a.op, e.rank + more, e.size, e.i);
}
double mark_of_each_rank(const Asked&, const Element& e) { return mark(e.part, e.i); }
double part_of_roots_mark(const Asked& a, const Element& e) { return mark(a.root, shifted(e.i, e.rank)); }
double part_of_each_rank(const Asked&, const Element& e) { return mark(e.part, shifted(e.i, e.rank)); }

bool every_rank(const Asked&, Rank, Rank) { return true; }
bool the_root(const Asked& asked, Rank rank, Rank) { return rank == asked.root; }
bool all_but_first(const Asked&, Rank rank, Rank) { return rank > 0; }

// ---- the calls

template <Collective collective>
Status call(Communicator& group, const Asked& asked, const Arrays& arrays) {
  return group.run(request_of(collective, asked, arrays));
}

Status barrier(Communicator& group, const Asked&, const Arrays&) { return group.run(Request{}); }

// sendrecv: ranks 0 and 1, 2 and 3, ... send to each other alternately, all pairs at once. One
// direction alone would measure how fast sends can be posted. If the number of ranks is odd, the
// last rank has no peer.
bool has_mate(const Asked&, Rank rank, Rank size) { return mate_of(rank, size) != rank; }
double mark_of_even(const Asked&, const Element& e) { return mark(e.rank & ~1, e.i); }
Status ping_pong(Communicator& group, const Asked&, const Arrays& arrays) {
  const Rank rank = group.rank(), mate = mate_of(rank, group.size());
  if (mate == rank) return Status::ok();
  if (rank < mate) PC_TRY(group.send(arrays.in, mate, 0));
  PC_TRY(group.recv(arrays.out, mate, 0));
  return rank < mate ? Status::ok() : group.send(arrays.out, mate, 0);
}

constexpr std::string_view kRunsAhead =
    "low ranks need nothing from high ones and may run ahead: times are the pace of calls in a row";
constexpr std::string_view kHalfTrip =
    "time is half a round trip between ranks 0 and 1, 2 and 3, ...: all pairs at once";

template <Collective collective>
constexpr Operation one_call(std::string_view name, decltype(Operation::parts) parts, BusBandwidth bus,
                             decltype(Operation::expected) expected,
                             decltype(Operation::has_result) has_result = every_rank,
                             std::string_view note = {}) {
  return {name, collective, parts, bus, call<collective>, expected, has_result, note};
}

constexpr std::array kOperations = {
    one_call<Collective::kAllreduce>("allreduce", whole, kThereAndBack, all_reduced),
    one_call<Collective::kBroadcast>("broadcast", whole, kBytes, roots_mark),
    one_call<Collective::kReduce>("reduce", whole, kBytes, all_reduced, the_root),
    one_call<Collective::kAllgather>("allgather", gathers, kAllButOwn, mark_of_each_rank),
    one_call<Collective::kReduceScatter>("reduce_scatter", scatters, kAllButOwn, part_reduced),
    one_call<Collective::kAlltoall>("alltoall", exchanges, kAllButOwn, part_of_each_rank),
    one_call<Collective::kGather>("gather", gathers, kAllButOwn, mark_of_each_rank, the_root),
    one_call<Collective::kScatter>("scatter", scatters, kAllButOwn, part_of_roots_mark),
    one_call<Collective::kScan>("scan", whole, kBytes, reduced_until_own<1>, every_rank, kRunsAhead),
    one_call<Collective::kExscan>("exscan", whole, kBytes, reduced_until_own<0>, all_but_first, kRunsAhead),
    Operation{"sendrecv", {}, whole, kBytes, ping_pong, mark_of_even, has_mate, kHalfTrip, 2},
    Operation{"barrier", Collective::kBarrier, whole, kNothing, barrier, roots_mark, every_rank},
};

}  // namespace

double Operation::input(const Asked& asked, const Element& e) const {
  if (reduces()) return contribution(asked.op, e.rank, e.size, shifted(e.i, e.part));
  return mark(e.rank, shifted(e.i, e.part));
}

Rank mate_of(Rank rank, Rank size) { return (rank ^ 1) < size ? rank ^ 1 : rank; }

Request request_of(Collective collective, const Asked& asked, const Arrays& arrays) {
  Request request;
  request.collective = collective;
  request.in = arrays.in;
  request.out = arrays.out;
  request.op = asked.op;
  request.root = asked.root;
  return request;
}

std::span<const Operation> operations() { return kOperations; }

const Operation* find_operation(std::string_view name) {
  for (const Operation& operation : kOperations) {
    if (operation.name == name) return &operation;
  }
  return nullptr;
}

}  // namespace pc::bench
