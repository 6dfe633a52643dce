#include "plan/plan.h"

namespace pc {
namespace {

std::string text(std::string_view one, Chunks chunks) {
  std::string result(one);
  if (chunks.count > 1) result += "s";
  result += " " + std::to_string(chunks.first);
  if (chunks.count > 1) result += ".." + std::to_string(uint64_t{chunks.first} + chunks.count - 1);
  return result;
}

// Names the memory of the data. The output is the default and needs no words.
std::string place(std::string_view preposition, Area area, Chunks chunks) {
  switch (area) {
    case Area::kInput: return std::string(preposition) + "input";
    case Area::kOutput: return "";
    case Area::kScratch: return std::string(preposition) + text("scratch", chunks);
  }
  return std::string(preposition) + "unknown";
}

constexpr std::string_view collective_name(Collective collective) {
  switch (collective) {
    case Collective::kAllreduce: return "allreduce";
    case Collective::kBroadcast: return "broadcast";
    case Collective::kReduce: return "reduce";
    case Collective::kBarrier: return "barrier";
    case Collective::kAllgather: return "allgather";
    case Collective::kReduceScatter: return "reduce_scatter";
    case Collective::kAlltoall: return "alltoall";
    case Collective::kGather: return "gather";
    case Collective::kScatter: return "scatter";
    case Collective::kScan: return "scan";
    case Collective::kExscan: return "exscan";
  }
  return "unknown";
}
// Fails if kCollectiveCount misses a collective.
static_assert(collective_name(static_cast<Collective>(kCollectiveCount)) == "unknown");

}  // namespace

std::string_view name_of(Collective collective) { return collective_name(collective); }

std::optional<Collective> collective_from_name(std::string_view name) {
  for (int i = 0; i < kCollectiveCount; ++i) {
    if (name_of(static_cast<Collective>(i)) == name) return static_cast<Collective>(i);
  }
  return std::nullopt;
}

std::string_view name_of(StepKind kind) {
  switch (kind) {
    case StepKind::kSend: return "send";
    case StepKind::kRecv: return "recv";
    case StepKind::kRecvReduce: return "recv_reduce";
    case StepKind::kReduce: return "reduce";
    case StepKind::kCopy: return "copy";
  }
  return "unknown";
}

std::string operands(const Step& step) {
  const Chunks moved = moved_chunks(step);
  const bool receives = step.kind == StepKind::kRecv || step.kind == StepKind::kRecvReduce;
  std::string result = moved.count == 0 ? "nothing" : text("chunk", moved);
  if (!receives) result += place(" from ", step.src_area, step.src);
  if (step.kind != StepKind::kSend) result += place(" into ", step.dst_area, step.dst);
  if (step.kind == StepKind::kSend) result += " -> rank " + std::to_string(step.peer);
  if (receives) result += " <- rank " + std::to_string(step.peer);
  return result;
}

std::string to_string(const Step& step) { return std::string(name_of(step.kind)) + " " + operands(step); }

}  // namespace pc
