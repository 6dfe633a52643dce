#include "bench/collectives.h"

#include <array>

#include "bench/patterns.h"

namespace pc::bench {
namespace {

// ---- how large

Parts whole(Rank) { return {1, 1}; }
Parts gathers(Rank size) { return {1, size}; }
Parts scatters(Rank size) { return {size, 1}; }
Parts exchanges(Rank size) { return {size, size}; }

// ---- how fast

double one(Rank) { return 1; }
double none(Rank) { return 0; }
double all_but_own(Rank size) { return 1.0 * (size - 1) / size; }
double there_and_back(Rank size) { return 2.0 * (size - 1) / size; }

// ---- what goes in

// A part that arrives in the place of another is wrong, too.
uint64_t shifted(uint64_t i, Rank part) { return i + 131 * static_cast<uint64_t>(part); }

double own_mark(const Asked&, const Element& e) { return mark(e.rank, shifted(e.i, e.part)); }
double own_part(const Asked& asked, const Element& e) {
  return contribution(asked.op, e.rank, e.size, shifted(e.i, e.part));
}
double roots_mark(const Asked& asked, const Element& e) { return mark(asked.root, shifted(e.i, e.part)); }

// ---- what must come out

double all_reduced(const Asked& asked, const Element& e) { return reduced(asked.op, e.size, e.i); }
double part_reduced(const Asked& asked, const Element& e) {
  return reduced(asked.op, e.size, shifted(e.i, e.rank));
}
double reduced_until_own(const Asked& asked, const Element& e) {
  return reduced_until(asked.op, e.rank + 1, e.size, e.i);
}
double reduced_before_own(const Asked& asked, const Element& e) {
  return reduced_until(asked.op, e.rank, e.size, e.i);
}
double everyones_mark(const Asked&, const Element& e) { return mark(e.part, e.i); }
double part_of_roots_mark(const Asked& asked, const Element& e) {
  return mark(asked.root, shifted(e.i, e.rank));
}
double everyones_part_for_own(const Asked&, const Element& e) { return mark(e.part, shifted(e.i, e.rank)); }

bool everybody(const Asked&, Rank, Rank) { return true; }
bool the_root(const Asked& asked, Rank rank, Rank) { return rank == asked.root; }
bool all_but_first(const Asked&, Rank rank, Rank) { return rank > 0; }

// ---- the calls

template <Collective collective>
Status call(Communicator& group, const Asked& asked, const Arrays& arrays) {
  return group.run(request_of(collective, asked, arrays));
}

Status barrier(Communicator& group, const Asked&, const Arrays&) { return group.run(Request{}); }

// sendrecv: ranks 0 and 1, 2 and 3, ... send to each other in turn, all pairs at once. One way would measure how fast sends
// can be posted. With an odd number of ranks the last one has nobody.
bool has_mate(const Asked&, Rank rank, Rank size) { return mate_of(rank, size) != rank; }
double mark_of_even(const Asked&, const Element& e) { return mark(e.rank & ~1, e.i); }
Status ping_pong(Communicator& group, const Asked&, const Arrays& arrays) {
  const Rank rank = group.rank(), mate = mate_of(rank, group.size());
  if (mate == rank) return Status::ok();
  if (rank < mate) PC_TRY(group.send(arrays.in, mate, 0));
  PC_TRY(group.recv(arrays.out, mate, 0));
  return rank < mate ? Status::ok() : group.send(arrays.out, mate, 0);
}

constexpr std::string_view kBytes = "bytes / time", kAllButOwn = "(n - 1) / n * bytes / time";
constexpr std::string_view kRunsAhead =
    "low ranks need nothing from high ones and may run ahead: times are the pace of calls in a row";

constexpr std::array<Operation, 12> kOperations = {{
    {.name = "allreduce",
     .collective = Collective::kAllreduce,
     .parts = whole,
     .bus_factor = there_and_back,
     .input = own_part,
     .run = call<Collective::kAllreduce>,
     .expected = all_reduced,
     .has_result = everybody,
     .formula = "2 (n - 1) / n * bytes / time",
     .reduces = true},
    {.name = "broadcast",
     .collective = Collective::kBroadcast,
     .parts = whole,
     .bus_factor = one,
     .input = own_mark,
     .run = call<Collective::kBroadcast>,
     .expected = roots_mark,
     .has_result = everybody,
     .formula = kBytes,
     .rooted = true},
    {.name = "reduce",
     .collective = Collective::kReduce,
     .parts = whole,
     .bus_factor = one,
     .input = own_part,
     .run = call<Collective::kReduce>,
     .expected = all_reduced,
     .has_result = the_root,
     .formula = kBytes,
     .reduces = true,
     .rooted = true},
    {.name = "allgather",
     .collective = Collective::kAllgather,
     .parts = gathers,
     .bus_factor = all_but_own,
     .input = own_mark,
     .run = call<Collective::kAllgather>,
     .expected = everyones_mark,
     .has_result = everybody,
     .formula = kAllButOwn},
    {.name = "reduce_scatter",
     .collective = Collective::kReduceScatter,
     .parts = scatters,
     .bus_factor = all_but_own,
     .input = own_part,
     .run = call<Collective::kReduceScatter>,
     .expected = part_reduced,
     .has_result = everybody,
     .formula = kAllButOwn,
     .reduces = true},
    {.name = "alltoall",
     .collective = Collective::kAlltoall,
     .parts = exchanges,
     .bus_factor = all_but_own,
     .input = own_mark,
     .run = call<Collective::kAlltoall>,
     .expected = everyones_part_for_own,
     .has_result = everybody,
     .formula = kAllButOwn,
     .in_place = false},
    {.name = "gather",
     .collective = Collective::kGather,
     .parts = gathers,
     .bus_factor = all_but_own,
     .input = own_mark,
     .run = call<Collective::kGather>,
     .expected = everyones_mark,
     .has_result = the_root,
     .formula = kAllButOwn,
     .rooted = true},
    {.name = "scatter",
     .collective = Collective::kScatter,
     .parts = scatters,
     .bus_factor = all_but_own,
     .input = own_mark,
     .run = call<Collective::kScatter>,
     .expected = part_of_roots_mark,
     .has_result = everybody,
     .formula = kAllButOwn,
     .rooted = true},
    {.name = "scan",
     .collective = Collective::kScan,
     .parts = whole,
     .bus_factor = one,
     .input = own_part,
     .run = call<Collective::kScan>,
     .expected = reduced_until_own,
     .has_result = everybody,
     .formula = kBytes,
     .note = kRunsAhead,
     .reduces = true,
     .averages = false},
    {.name = "exscan",
     .collective = Collective::kExscan,
     .parts = whole,
     .bus_factor = one,
     .input = own_part,
     .run = call<Collective::kExscan>,
     .expected = reduced_before_own,
     .has_result = all_but_first,
     .formula = kBytes,
     .note = kRunsAhead,
     .reduces = true,
     .averages = false},
    {.name = "sendrecv",
     .parts = whole,
     .bus_factor = one,
     .input = own_mark,
     .run = ping_pong,
     .expected = mark_of_even,
     .has_result = has_mate,
     .formula = kBytes,
     .note = "time is half a round trip between ranks 0 and 1, 2 and 3, ...: all pairs at once",
     .trips = 2},
    {.name = "barrier",
     .parts = whole,
     .bus_factor = none,
     .input = own_mark,
     .run = barrier,
     .expected = own_mark,
     .has_result = everybody,
     .formula = "0",
     .moves_data = false},
}};

}  // namespace

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
