// A plan is data: what one rank does in one collective, as a list of 32-byte steps over chunks and
// ranks. It contains no bytes, dtypes, pointers or devices: these appear when an executor binds the
// plan. Every algorithm can therefore be checked without a network, simulated, explained, and named
// step by step in errors. See docs/plans.md.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/status.h"
#include "base/types.h"

namespace pc {

// clang-format off
enum class Collective : uint8_t {
  kAllreduce, kBroadcast, kReduce, kBarrier, kAllgather, kReduceScatter, kAlltoall, kGather, kScatter, kScan, kExscan,
};
// clang-format on
inline constexpr int kCollectiveCount = 11;
std::string_view name_of(Collective collective);
std::optional<Collective> collective_from_name(std::string_view name);

enum class StepKind : uint8_t { kSend, kRecv, kRecvReduce, kReduce, kCopy };
// kInput is the caller's array and is never written. kOutput is the result. In place, both are the
// same memory.
enum class Area : uint8_t { kInput, kOutput, kScratch };

struct Chunks {
  uint32_t first = 0, count = 0;  // in chunks, never bytes; chunks of an array are named as in contracts.h
  bool operator==(const Chunks&) const = default;
};

// Meaning. The steps of one lane start in list order. A lane continues past a send as soon as the
// send is posted, and past any other step only when that step is complete. `after` adds one
// dependency: 0, or 1 + the index of a step that must be COMPLETE. (A send is complete when its
// memory has been read for the last time, which says nothing about the receiver.) Lanes run
// concurrently. Between two ranks, messages of one lane arrive in order: this rank's k-th send of
// lane L to peer p matches p's k-th receive of lane L from this rank.
//
//   kSend       src -> peer               kRecv        peer -> dst
//   kRecvReduce dst = dst (op) message    kReduce      dst = dst (op) src      kCopy  dst = src
//
// Sizes. The chunks of an array may differ in size, so every step names the array chunks that it
// moves, see moved_chunks(). If one side of a step is scratch, the other side names the array
// chunks. This also holds for messages, where the other side is no memory of this rank: a send from
// scratch names the chunks in `dst`, a receive into scratch in `src`. The sender and the receiver
// of a message name the same chunks. A step uses one chunk of scratch at a time. Only if all chunks
// have the same size (packs() in contracts.h) may a message use several chunks of scratch at once.
//
// Weights. `dst_weight` and `src_weight` are the numbers of ranks that have contributed to `dst`
// and to the added operand so far. With them, "avg" of short floats is a running mean that cannot
// overflow, and the executor knows which reduction completes a chunk (the sum of its weights is
// `size`).
struct Step {
  StepKind kind = StepKind::kCopy;
  Area src_area = Area::kOutput;
  Area dst_area = Area::kOutput;
  uint8_t lane = 0;
  Rank peer = -1;
  Chunks src = {};
  Chunks dst = {};
  uint32_t after = 0;
  uint16_t dst_weight = 0;
  uint16_t src_weight = 0;
  bool operator==(const Step&) const = default;
};
static_assert(sizeof(Step) == 32 && std::is_trivially_copyable_v<Step>);
inline constexpr Rank kMostRanks = std::numeric_limits<decltype(Step::dst_weight)>::max();

std::string_view name_of(StepKind kind);  // "send", "recv_reduce", ...
std::string operands(const Step& step);   // "chunk 2 <- rank 1"
std::string to_string(const Step& step);  // "recv_reduce chunk 2 <- rank 1": for errors and explain

// Returns the array chunks that a step moves. They determine the step's size in bytes, even if its
// memory is scratch.
inline Chunks moved_chunks(const Step& step) {
  if (step.kind == StepKind::kRecv || step.kind == StepKind::kRecvReduce) {
    return step.dst_area == Area::kScratch ? step.src : step.dst;
  }
  return step.src_area == Area::kScratch ? step.dst : step.src;
}

// The input from which a plan is built and, with the algorithm's name, the key of the plan cache.
// It contains shape only, never pointers.
struct Shape {
  Collective collective = Collective::kBarrier;
  Rank rank = 0;
  Rank size = 1;
  Rank root = 0;  // of rooted collectives
  // pipelining: the number of consecutive pieces into which the array or each part is cut
  uint32_t split = 1;
  bool even = true;  // every rank's part has the same size
  bool operator==(const Shape&) const = default;
};

struct Plan {
  std::string_view algorithm;  // its name in the catalog
  Shape shape;
  uint32_t chunks = 0;  // input and output are cut into this many chunks (0: the collective moves no data)
  uint32_t scratch_chunks = 0;  // each as large as the largest chunk
  uint8_t lanes = 1;
  std::vector<Step> steps;
};
// Before step 0 the executor copies the chunks that input and output share, so a plan finds this
// rank's contribution in kOutput. contracts.h defines which rank has which chunks of input and
// output. Where a rank has no output, its plan may write only to kScratch, because the caller's
// array must stay untouched.

constexpr uint64_t fnv1a(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}
// What Shape::split cuts: nothing, the array, or each rank's part of it.
enum class Pipelines : uint8_t { kNot, kArray, kParts };
struct Algorithm {        // one row of plan/catalog.cc
  std::string_view name;  // "ring", "recursive_doubling", "binomial", "dissemination"
  Collective collective;
  bool (*supports)(const Shape&);
  Plan (*build)(const Shape&);  // a pure function
  std::string_view source;      // paper or textbook
  std::string_view summary;     // one line: rounds and bytes per rank
  Pipelines pipelines;
  // Every element is summed in the same order, regardless of its position in the array and of how
  // the array is cut. All algorithms of one collective that set this use the same order.
  bool fixed_order = false;
  uint64_t name_hash = fnv1a(name);  // the same on all ranks
};
// Returns one row per collective for an executor that needs no plan. The rows give the executor a
// name for records and errors. The texts must live as long as the process.
std::array<Algorithm, kCollectiveCount> algorithms_without_plan(std::string_view name,
                                                                std::string_view summary,
                                                                std::string_view source, bool fixed_order);
std::span<const Algorithm> algorithms();                                        // the whole catalog
const Algorithm* find_algorithm(Collective collective, std::string_view name);  // nullptr if there is none

// Returns OK if the plans (one per rank, in rank order) match each other, cannot deadlock, deliver
// the collective's contract, carry right weights, and have no hazard under any interleaving and any
// read time of a send (eager or zero-copy).
Status check(std::span<const Plan> every_rank);
std::string explain(const Plan& plan);  // one line per step

}  // namespace pc
