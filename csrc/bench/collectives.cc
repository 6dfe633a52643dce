#include "bench/collectives.h"

#include <array>

#include "bench/patterns.h"

namespace pc::bench {
namespace {

double own_mark(const Asked&, Rank rank, Rank, uint64_t i) { return mark(rank, i); }
double own_part(const Asked& asked, Rank rank, Rank size, uint64_t i) {
  return contribution(asked.op, rank, size, i);
}
double one(Rank) { return 1; }
double none(Rank) { return 0; }

template <Collective collective>
Status run_in_place(Communicator& world, const Asked& asked, Buffer data) {
  Request request;
  request.collective = collective;
  request.in = data;
  request.out = data;
  request.op = asked.op;
  request.root = asked.root;
  return world.run(request);
}

double allreduce_expected(const Asked& asked, Rank, Rank size, uint64_t i) {
  return reduced(asked.op, size, i);
}
double allreduce_bus_factor(Rank size) { return 2.0 * (size - 1) / size; }

double broadcast_expected(const Asked& asked, Rank, Rank, uint64_t i) { return mark(asked.root, i); }

// All but the root keep what they have.
double reduce_expected(const Asked& asked, Rank rank, Rank size, uint64_t i) {
  return rank == asked.root ? reduced(asked.op, size, i) : own_part(asked, rank, size, i);
}

// sendrecv: ranks 0 and 1, 2 and 3, ... send to each other in turn, all pairs at once. One way would measure how fast sends
// can be posted. With an odd number of ranks the last one has nobody.
Rank mate_of(Rank rank, Rank size) { return (rank ^ 1) < size ? rank ^ 1 : rank; }

double sendrecv_expected(const Asked&, Rank rank, Rank size, uint64_t i) {
  return mark(mate_of(rank, size) == rank ? rank : rank & ~1, i);
}
Status sendrecv_run(Communicator& world, const Asked&, Buffer data) {
  const Rank rank = world.rank(), mate = mate_of(rank, world.size());
  if (mate == rank) return Status::ok();
  if (rank < mate) PC_TRY(world.send(data, mate, 0));
  PC_TRY(world.recv(data, mate, 0));
  return rank < mate ? Status::ok() : world.send(data, mate, 0);
}

Status barrier_run(Communicator& world, const Asked&, Buffer) { return world.run(Request{}); }

constexpr std::array<Operation, 5> kOperations = {{
    {.name = "allreduce",
     .input = own_part,
     .expected = allreduce_expected,
     .run = run_in_place<Collective::kAllreduce>,
     .bus_factor = allreduce_bus_factor,
     .formula = "2 (n - 1) / n * bytes / time",
     .reduces = true},
    {.name = "broadcast",
     .input = own_mark,
     .expected = broadcast_expected,
     .run = run_in_place<Collective::kBroadcast>,
     .bus_factor = one,
     .formula = "bytes / time",
     .rooted = true},
    {.name = "reduce",
     .input = own_part,
     .expected = reduce_expected,
     .run = run_in_place<Collective::kReduce>,
     .bus_factor = one,
     .formula = "bytes / time",
     .reduces = true,
     .rooted = true},
    {.name = "sendrecv",
     .input = own_mark,
     .expected = sendrecv_expected,
     .run = sendrecv_run,
     .bus_factor = one,
     .formula = "bytes / time",
     .note = "time is half a round trip between ranks 0 and 1, 2 and 3, ...: all pairs at once",
     .trips = 2},
    {.name = "barrier",
     .input = own_mark,
     .expected = own_mark,
     .run = barrier_run,
     .bus_factor = none,
     .formula = "0",
     .moves_data = false},
}};

}  // namespace

std::span<const Operation> operations() { return kOperations; }

const Operation* find_operation(std::string_view name) {
  for (const Operation& operation : kOperations) {
    if (operation.name == name) return &operation;
  }
  return nullptr;
}

}  // namespace pc::bench
