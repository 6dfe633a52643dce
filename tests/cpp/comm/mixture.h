// Calls of all kinds, one after the other, with results that every rank knows.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "world.h"

namespace pc::testing {

inline constexpr double kManyCallsS = 60;  // for a world that makes many calls

// Element i of a rank's array in a call; sums of a few ranks are exact.
inline float value(Rank rank, uint64_t call, std::size_t i) {
  return static_cast<float>((static_cast<uint64_t>(rank) * 7 + call * 13 + i * 3) % 1024);
}

inline std::vector<float> array_of(Rank rank, uint64_t call, std::size_t count) {
  std::vector<float> array(count);
  for (std::size_t i = 0; i < count; ++i) array[i] = value(rank, call, i);
  return array;
}
inline Buffer view_of(std::vector<float>& array, std::size_t begin, std::size_t count) {
  return {reinterpret_cast<std::byte*>(array.data() + begin), count, DType::kF32};
}

inline Request request_of(Collective collective, std::vector<float>& in, std::vector<float>& out, Rank root) {
  Request request;
  request.collective = collective;
  request.root = root;
  request.in = view_of(in, 0, in.size());
  request.out = view_of(out, 0, out.size());
  return request;
}

inline Status expect(std::span<const float> got, std::size_t at, float wanted, uint64_t call,
                     Collective collective) {
  if (got[at] == wanted) return Status::ok();
  return Status(Code::kInternal, std::string(name_of(collective)) + " " + std::to_string(call) +
                                     ": element " + std::to_string(at) + " is " + std::to_string(got[at]) +
                                     ", not " + std::to_string(wanted));
}

// Makes the call of the mixture that every rank chooses from `call`, and checks its result.
inline Status make_and_check(Communicator& group, uint64_t call, std::size_t count,
                             double timeout_s = kManyCallsS) {
  const Rank rank = group.rank(), size = group.size();
  const std::size_t ranks = static_cast<std::size_t>(size);
  const Collective kinds[] = {Collective::kAllreduce, Collective::kBroadcast, Collective::kReduce,
                              Collective::kAllgather, Collective::kAlltoall,  Collective::kReduceScatter,
                              Collective::kScan,      Collective::kGather,    Collective::kScatter};
  const Collective kind = kinds[call % std::size(kinds)];
  const Rank root = static_cast<Rank>(call / 2 % ranks);
  const bool sends_parts =
      kind == Collective::kAlltoall || kind == Collective::kReduceScatter || kind == Collective::kScatter;
  const bool gets_parts =
      kind == Collective::kAlltoall || kind == Collective::kAllgather || kind == Collective::kGather;
  std::vector<float> in = array_of(rank, call, sends_parts ? count * ranks : count);
  std::vector<float> out(gets_parts ? count * ranks : count, -1.0F);
  Request request = request_of(kind, in, out, root);
  if (kind == Collective::kBroadcast && rank != root) request.in = {};
  if (kind == Collective::kScatter && rank != root) request.in = {};
  PC_TRY(group.run(request, timeout_s));
  if ((kind == Collective::kReduce || kind == Collective::kGather) && rank != root) return Status::ok();
  for (std::size_t i = 0; i < out.size(); ++i) {
    float wanted = 0;
    const std::size_t part = i / std::max<std::size_t>(count, 1), place = i % std::max<std::size_t>(count, 1);
    const Rank from = static_cast<Rank>(part);
    switch (kind) {
      case Collective::kBroadcast: wanted = value(root, call, i); break;
      case Collective::kAllgather:
      case Collective::kGather: wanted = value(from, call, place); break;
      case Collective::kAlltoall:
        wanted = value(from, call, place + count * static_cast<std::size_t>(rank));
        break;
      case Collective::kScatter:
        wanted = value(root, call, i + count * static_cast<std::size_t>(rank));
        break;
      default: {
        const Rank to = kind == Collective::kScan ? rank + 1 : size;
        const std::size_t at =
            kind == Collective::kReduceScatter ? i + count * static_cast<std::size_t>(rank) : i;
        for (Rank r = 0; r < to; ++r) wanted += value(r, call, at);
      }
    }
    PC_TRY(expect(out, i, wanted, call, kind));
  }
  return Status::ok();
}

inline std::size_t count_for(uint64_t call) {
  constexpr std::size_t kCounts[] = {1, 14, 15, 300, 5'000, 40'000, 150'000, 3};
  return kCounts[call / 9 % std::size(kCounts)];
}

}  // namespace pc::testing
