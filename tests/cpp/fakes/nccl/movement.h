// A FAKE of NCCL: the effect of its calls on host memory, when the last rank has issued them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "comms.h"

namespace fake_nccl {

// Arithmetic on host memory.
template <class T>
T combined(T a, T b, int op) {
  using Wide = std::conditional_t<std::is_integral_v<T>, uint64_t, T>;
  switch (op) {
    case kProd: return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
    case kMax: return std::max(a, b);
    case kMin: return std::min(a, b);
    default: return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b));
  }
}
template <class T>
T at(const std::byte* data, std::size_t index) {
  T value;
  std::memcpy(&value, data + index * sizeof(T), sizeof(T));
  return value;
}
template <class T>
T contribution(const Call& call, std::size_t index, int ranks) {
  const T value = at<T>(call.in, index);
  if (call.op == kAvg) return static_cast<T>(value * static_cast<T>(T{1} / static_cast<T>(ranks)));
  if (call.op < kFirstOwn) return value;
  return static_cast<T>(value * at<T>(call.factor.data(), 0));
}
using Calls = std::vector<Arrival>;
template <class T>
std::vector<std::byte> reduced(const Calls& calls, std::size_t count) {
  const int ranks = static_cast<int>(calls.size());
  std::vector<std::byte> result(count * sizeof(T));
  for (std::size_t i = 0; i < count; ++i) {
    T sum = contribution<T>(calls[0].call, i, ranks);
    for (std::size_t r = 1; r < calls.size(); ++r)
      sum = combined<T>(sum, contribution<T>(calls[r].call, i, ranks), calls[r].call.op);
    std::memcpy(result.data() + i * sizeof(T), &sum, sizeof(T));
  }
  return result;
}
inline std::vector<std::byte> reduced_as(int dtype, const Calls& calls, std::size_t count) {
  switch (dtype) {
    case 0: return reduced<int8_t>(calls, count);
    case 1: return reduced<uint8_t>(calls, count);
    case 2: return reduced<int32_t>(calls, count);
    case 3: return reduced<uint32_t>(calls, count);
    case 4: return reduced<int64_t>(calls, count);
    case 5: return reduced<uint64_t>(calls, count);
    case 7: return reduced<float>(calls, count);
    case 8: return reduced<double>(calls, count);
    default: violation("the fake has no arithmetic for type " + std::to_string(dtype)); return {};
  }
}
inline void put(std::byte* to, const std::byte* from, std::size_t nbytes) {
  if (nbytes != 0 && to != from) std::memmove(to, from, nbytes);
}

// Returns how many elements a single rank multiplies: before 2.29.7 only those that the blocks of
// NCCL's kernel divide evenly.
inline std::size_t multiplied_alone(std::size_t count, std::size_t nbytes) {
  if (FAKE_NCCL_VERSION >= 22907 || nbytes == 0) return count;
  const std::size_t blocks = std::min<std::size_t>(32, (nbytes + 16383) / 16384);
  const std::size_t in_pack = 16 * count / nbytes, each = (count / blocks + in_pack - 1) / in_pack * in_pack;
  return std::min(count, blocks * each);
}

// Executes a collective that all ranks have issued. `calls` is in the order of ranks.
inline void run_collective(const Calls& calls) {
  const Call& first = calls[0].call;
  const std::size_t nbytes = first.count * kSizes[static_cast<std::size_t>(first.dtype)];
  const std::size_t ranks = calls.size(), root = static_cast<std::size_t>(first.root);
  const bool scatters = first.kind == "ReduceScatter";
  if (first.kind == "AllReduce" || first.kind == "Reduce" || scatters) {
    const auto all = reduced_as(first.dtype, calls, scatters ? first.count * ranks : first.count);
    if (all.empty()) return;
    if (ranks == 1 && (first.op == kAvg || first.op >= kFirstOwn))
      return put(first.out, all.data(), multiplied_alone(first.count, nbytes) * nbytes / first.count);
    for (std::size_t r = 0; r < ranks; ++r)
      if (first.kind != "Reduce" || r == root)
        put(calls[r].call.out, all.data() + (scatters ? r * nbytes : 0), nbytes);
    return;
  }
  // All input is read before any output is written: the arrays of ranks may overlap, as in-place
  // calls allow.
  std::vector<std::vector<std::byte>> inputs;
  const bool whole = first.kind == "AlltoAll" || first.kind == "Scatter";
  for (std::size_t r = 0; r < ranks; ++r) {
    const bool has = r == root || (first.kind != "Broadcast" && first.kind != "Scatter");
    const std::byte* const in = calls[r].call.in;
    inputs.emplace_back();
    if (has) inputs.back().assign(in, in + nbytes * (whole ? ranks : 1));
  }
  for (std::size_t r = 0; r < ranks; ++r) {
    std::byte* const out = calls[r].call.out;
    if (first.kind == "Broadcast") put(out, inputs[root].data(), nbytes);
    if (first.kind == "Scatter") put(out, inputs[root].data() + r * nbytes, nbytes);
    for (std::size_t from = 0; from < ranks; ++from) {
      if (first.kind == "AllGather" || (first.kind == "Gather" && r == root))
        put(out + from * nbytes, inputs[from].data(), nbytes);
      if (first.kind == "AlltoAll") put(out + from * nbytes, inputs[from].data() + r * nbytes, nbytes);
    }
  }
}

// An operation is one call, or one group of calls, that a rank has issued. None of its calls
// completes before all of them can.
struct Operation {
  std::shared_ptr<World> world;
  std::shared_ptr<Life> life;
  Comm* comm;  // valid while life is not dead
  std::vector<Call> calls;
  int64_t position = 0;  // in issue order; -1 if it is in a graph
  bool arrived = false;
  std::size_t missing = 0;  // number of calls that wait for other ranks
};
inline void is_through(const Arrival& each) {
  if (each.operation != nullptr) --each.operation->missing;
}

inline void arrive_collective(Comm& comm, const Call& call, Operation* operation) {
  World& world = *comm.world;
  const std::size_t number = comm.collectives++;
  Calls& calls = world.pending[number];
  calls.push_back({comm.rank, call, operation});
  if (calls.size() < static_cast<std::size_t>(world.size)) return;
  std::sort(calls.begin(), calls.end(), [](const Arrival& a, const Arrival& b) { return a.rank < b.rank; });
  bool alike = true;
  for (const Arrival& each : calls) alike = alike && each.call == calls[0].call;
  if (alike) {
    run_collective(calls);
  } else {  // NCCL does not detect this either, and its results are undefined
    violation("ranks issue different calls");
    for (const Arrival& each : calls)
      std::memset(each.call.out, 0x2a, each.call.count * kSizes[static_cast<std::size_t>(each.call.dtype)]);
  }
  if (world.spoiled) calls[0].call.out[0] ^= std::byte{1};
  std::for_each(calls.begin(), calls.end(), is_through);
  world.pending.erase(number);
}
inline void arrive_message(Comm& comm, const Call& call, Operation* operation) {
  const bool sends = call.kind == "Send";
  World& world = *comm.world;
  const std::pair<int, int> way = sends ? std::pair(comm.rank, call.root) : std::pair(call.root, comm.rank);
  (sends ? world.sends : world.recvs)[way].push_back({comm.rank, call, operation});
  std::deque<Arrival>&sent = world.sends[way], &received = world.recvs[way];
  while (!sent.empty() && !received.empty()) {
    const Call &from = sent.front().call, &to = received.front().call;
    if (from.count != to.count || from.dtype != to.dtype) violation("a message is received as another");
    put(to.out, from.in, from.count * kSizes[static_cast<std::size_t>(from.dtype)]);
    is_through(sent.front());
    is_through(received.front());
    sent.pop_front();
    received.pop_front();
  }
}
inline void arrive(Comm& comm, const std::vector<Call>& calls, Operation* operation) {
  for (const Call& call : calls)
    call.kind == "Send" || call.kind == "Recv" ? arrive_message(comm, call, operation)
                                               : arrive_collective(comm, call, operation);
}
// Drops an operation, so that no other rank's call moves data for it.
inline void forget(World& world, const Operation* operation) {
  const auto is_its = [&](const Arrival& each) { return each.operation == operation; };
  for (auto& [number, calls] : world.pending) std::erase_if(calls, is_its);
  for (auto* messages : {&world.sends, &world.recvs})
    for (auto& [way, waiting] : *messages) std::erase_if(waiting, is_its);
}

}  // namespace fake_nccl
