#include "bench/collectives.h"

#include <array>

namespace pc::bench {
namespace {

int64_t pattern(uint64_t i) { return static_cast<int64_t>(i % 5 + 1); }
int64_t weight(Rank rank) { return 1 + rank % 2; }
int64_t sum_of_weights(Rank size) { return size + size / 2; }

int64_t weighted(Rank rank, uint64_t i) { return pattern(i) * weight(rank); }
double one(Rank) { return 1; }

Status run_in_place(Communicator& world, Collective collective, Buffer data) {
  Request request;
  request.collective = collective;
  request.in = data;
  request.out = data;
  return world.run(request);
}

// allreduce
int64_t allreduce_expected(Rank, Rank size, uint64_t i) { return pattern(i) * sum_of_weights(size); }
Status allreduce_run(Communicator& world, Buffer data) {
  return run_in_place(world, Collective::kAllreduce, data);
}
double allreduce_bus_factor(Rank size) { return 2.0 * (size - 1) / size; }
std::string_view allreduce_formula() { return "2 (n - 1) / n * bytes / time"; }

// broadcast, from rank 0
int64_t broadcast_expected(Rank, Rank, uint64_t i) { return weighted(0, i); }
Status broadcast_run(Communicator& world, Buffer data) {
  return run_in_place(world, Collective::kBroadcast, data);
}
std::string_view broadcast_formula() { return "bytes / time"; }

// reduce, to rank 0; the others keep what they have
int64_t reduce_expected(Rank rank, Rank size, uint64_t i) {
  return rank == 0 ? allreduce_expected(rank, size, i) : weighted(rank, i);
}
Status reduce_run(Communicator& world, Buffer data) { return run_in_place(world, Collective::kReduce, data); }
std::string_view reduce_formula() { return "bytes / time"; }

// sendrecv: from the last rank to rank 0 and back. One way would measure how fast sends can be posted.
int64_t sendrecv_expected(Rank rank, Rank size, uint64_t i) {
  return weighted(rank == 0 ? size - 1 : rank, i);
}
Status sendrecv_run(Communicator& world, Buffer data) {
  const Rank last = world.size() - 1;
  if (last > 0 && world.rank() == last) {
    PC_TRY(world.send(data, 0, 0));
    return world.recv(data, 0, 0);
  }
  if (last > 0 && world.rank() == 0) {
    PC_TRY(world.recv(data, last, 0));
    return world.send(data, last, 0);
  }
  return Status::ok();
}
double sendrecv_bus_factor(Rank) { return 2; }
std::string_view sendrecv_formula() { return "2 * bytes / time, from the last rank to rank 0 and back"; }

// barrier
int64_t barrier_expected(Rank rank, Rank, uint64_t i) { return weighted(rank, i); }
Status barrier_run(Communicator& world, Buffer) {
  return run_in_place(world, Collective::kBarrier, Buffer());
}
double barrier_bus_factor(Rank) { return 0; }
std::string_view barrier_formula() { return "0: it moves no data"; }

constexpr std::array<Operation, 5> kOperations = {{
    {"allreduce", weighted, allreduce_expected, allreduce_run, allreduce_bus_factor, allreduce_formula},
    {"broadcast", weighted, broadcast_expected, broadcast_run, one, broadcast_formula},
    {"reduce", weighted, reduce_expected, reduce_run, one, reduce_formula},
    {"sendrecv", weighted, sendrecv_expected, sendrecv_run, sendrecv_bus_factor, sendrecv_formula},
    {"barrier", weighted, barrier_expected, barrier_run, barrier_bus_factor, barrier_formula, false},
}};

template <class T>
void fill_as(const Operation& operation, Rank rank, Buffer data) {
  T* const x = reinterpret_cast<T*>(data.data);
  for (uint64_t i = 0; i < data.count; ++i) x[i] = static_cast<T>(operation.input(rank, i));
}

template <class T>
uint64_t wrong_as(const Operation& operation, Rank rank, Rank size, ConstBuffer data) {
  const T* const x = reinterpret_cast<const T*>(data.data);
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < data.count; ++i) {
    // Bytes wrap round in a sum; so does this conversion.
    wrong += x[i] == static_cast<T>(operation.expected(rank, size, i)) ? 0 : 1;
  }
  return wrong;
}

struct Type {
  DType dtype;
  void (*fill)(const Operation&, Rank, Buffer);
  uint64_t (*wrong)(const Operation&, Rank, Rank, ConstBuffer);
};
constexpr std::array<Type, 5> kTypes = {{
    {DType::kF32, fill_as<float>, wrong_as<float>},
    {DType::kF64, fill_as<double>, wrong_as<double>},
    {DType::kI32, fill_as<int32_t>, wrong_as<int32_t>},
    {DType::kI64, fill_as<int64_t>, wrong_as<int64_t>},
    {DType::kU8, fill_as<uint8_t>, wrong_as<uint8_t>},
}};

const Type* find_type(DType dtype) {
  for (const Type& type : kTypes) {
    if (type.dtype == dtype) return &type;
  }
  return nullptr;
}

}  // namespace

std::span<const Operation> operations() { return kOperations; }

const Operation* find_operation(std::string_view name) {
  for (const Operation& operation : kOperations) {
    if (operation.name == name) return &operation;
  }
  return nullptr;
}

bool can_fill(DType dtype) { return find_type(dtype) != nullptr; }

void fill(const Operation& operation, Rank rank, Buffer data) {
  find_type(data.dtype)->fill(operation, rank, data);
}

uint64_t count_wrong(const Operation& operation, Rank rank, Rank size, ConstBuffer data) {
  return find_type(data.dtype)->wrong(operation, rank, size, data);
}

}  // namespace pc::bench
