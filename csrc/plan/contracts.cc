#include "plan/contracts.h"

#include <algorithm>

namespace pc {
namespace {

// splitmix64's finalizer (Steele, Lea, Flood, 2014): adjacent numbers get unrelated words.
uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}
uint64_t word_for(uint64_t kind, Rank rank, uint32_t chunk) {
  return mixed(mixed(kind) + (static_cast<uint64_t>(rank) << 32) + chunk);
}

// No switch here has a default, so the compiler reports every switch in which a collective is
// missing.
struct Traits {
  bool is_rooted = false, reduces = false, has_parts = false, is_scan = false;
};
constexpr Traits traits_of(Collective collective) {
  switch (collective) {
    case Collective::kAllreduce: return {.reduces = true};
    case Collective::kBroadcast: return {.is_rooted = true};
    case Collective::kReduce: return {.is_rooted = true, .reduces = true};
    case Collective::kAllgather:
    case Collective::kAlltoall: return {.has_parts = true};
    case Collective::kReduceScatter: return {.reduces = true, .has_parts = true};
    case Collective::kGather:
    case Collective::kScatter: return {.is_rooted = true, .has_parts = true};
    case Collective::kScan:
    case Collective::kExscan: return {.reduces = true, .is_scan = true};
    case Collective::kBarrier: break;
  }
  return {};
}

enum class Extent : uint8_t { kNothing, kAll, kPart, kRow, kColumn };
struct Arrays {
  Extent input, output;
};

Arrays arrays_of(const Shape& shape) {
  using enum Extent;
  const bool at_root = shape.rank == shape.root;
  switch (shape.collective) {
    case Collective::kAllreduce:
    case Collective::kScan: return {kAll, kAll};
    case Collective::kExscan: return {kAll, shape.rank == 0 ? kNothing : kAll};  // no rank is before rank 0
    case Collective::kBroadcast: return {at_root ? kAll : kNothing, kAll};
    case Collective::kReduce: return {kAll, at_root ? kAll : kNothing};
    case Collective::kAllgather: return {kPart, kAll};
    case Collective::kGather: return {kPart, at_root ? kAll : kNothing};
    case Collective::kReduceScatter: return {kAll, kPart};
    case Collective::kScatter: return {at_root ? kAll : kNothing, kPart};
    case Collective::kAlltoall: return {kRow, kColumn};
    case Collective::kBarrier: break;
  }
  return {kNothing, kNothing};
}

Extent extent_of(const Shape& shape, Area area) {
  const Arrays arrays = arrays_of(shape);
  return area == Area::kInput ? arrays.input : area == Area::kOutput ? arrays.output : Extent::kNothing;
}

}  // namespace

bool Held::has(Chunks names) const {
  if (names.count == 0) return false;
  if (stride == 1)
    return names.first >= first && uint64_t{names.first} + names.count <= uint64_t{first} + count;
  return names.count == 1 && names.first >= first && (names.first - first) % stride == 0 &&
         place(names.first) < count;
}

Held held(const Shape& shape, uint32_t chunks, Area area) {
  const uint32_t rank = static_cast<uint32_t>(shape.rank), size = static_cast<uint32_t>(shape.size);
  switch (extent_of(shape, area)) {
    case Extent::kNothing: return {};
    case Extent::kAll: return {0, chunks};
    case Extent::kPart: return {rank * (chunks / size), chunks / size};
    case Extent::kRow: return {rank * size, size};
    case Extent::kColumn: return {rank, size, size};
  }
  return {};
}

bool has_input(const Shape& shape) { return extent_of(shape, Area::kInput) != Extent::kNothing; }
bool has_output(const Shape& shape) { return extent_of(shape, Area::kOutput) != Extent::kNothing; }

Chunks shared_chunks(const Shape& shape, uint32_t chunks) {
  const Held in = held(shape, chunks, Area::kInput), out = held(shape, chunks, Area::kOutput);
  if (in.count == 0 || out.count == 0) return {};
  if (out.stride != 1) return {in.name(out.first), 1};  // alltoall: the rank's chunk for itself
  return in.count < out.count ? Chunks{in.first, in.count} : Chunks{out.first, out.count};
}

bool is_rooted(Collective collective) { return traits_of(collective).is_rooted; }
bool reduces(Collective collective) { return traits_of(collective).reduces; }
bool is_scan(Collective collective) { return traits_of(collective).is_scan; }
bool moves_data(Collective collective) { return collective != Collective::kBarrier; }
bool has_parts(Collective collective) { return traits_of(collective).has_parts; }
bool leaves_output(Collective collective) { return moves_data(collective) && !has_output({collective}); }
bool in_place(Collective collective) { return collective != Collective::kAlltoall; }
bool synchronizes(Collective collective) { return collective == Collective::kBarrier; }

bool right_chunks(const Shape& shape, uint32_t chunks) {
  if (!moves_data(shape.collective)) return chunks == 0;
  const uint64_t size = static_cast<uint64_t>(shape.size);
  if (shape.collective == Collective::kAlltoall) return chunks == size * size;
  return has_parts(shape.collective) ? chunks == size * shape.split : chunks > 0;
}

bool packs(const Shape& shape) { return has_parts(shape.collective) && shape.even && shape.split == 1; }

Fingerprint operator+(const Fingerprint& a, const Fingerprint& b) {
  return {a.word + b.word, a.contributions + b.contributions};
}

Fingerprint contribution(Rank rank, uint32_t chunk) { return {word_for(1, rank, chunk), 1}; }

Fingerprint never_written(Rank rank, Area area, uint32_t chunk) {
  const uint64_t kind = 2 + static_cast<uint64_t>(area);
  return {word_for(kind, rank, chunk), mixed(word_for(kind, rank, chunk))};
}

Fingerprint first_input(const Shape& shape, uint32_t chunks, uint32_t place) {
  return contribution(shape.rank, held(shape, chunks, Area::kInput).name(place));
}

Fingerprint first_output(const Shape& shape, uint32_t chunks, uint32_t place) {
  const uint32_t name = held(shape, chunks, Area::kOutput).name(place);
  const Chunks both = shared_chunks(shape, chunks);
  const bool copied = name >= both.first && name - both.first < both.count;
  return copied ? contribution(shape.rank, name) : never_written(shape.rank, Area::kOutput, name);
}

Contributors contributors(const Shape& shape, uint32_t chunks, uint32_t name) {
  const auto one = [](Rank rank) { return Contributors{rank, rank + 1}; };
  const uint32_t size = static_cast<uint32_t>(shape.size);
  switch (shape.collective) {
    case Collective::kBroadcast:
    case Collective::kScatter: return one(shape.root);
    case Collective::kAllgather:
    case Collective::kGather: return one(static_cast<Rank>(name / (chunks / size)));
    case Collective::kAlltoall: return one(static_cast<Rank>(name / size));
    case Collective::kScan: return {0, shape.rank + 1};
    case Collective::kExscan: return {0, shape.rank};
    case Collective::kAllreduce:
    case Collective::kReduce:
    case Collective::kReduceScatter:
    case Collective::kBarrier: break;
  }
  return {0, shape.size};
}

Fingerprint wanted_output(const Shape& shape, uint32_t chunks, uint32_t place) {
  const uint32_t name = held(shape, chunks, Area::kOutput).name(place);
  const Contributors ranks = contributors(shape, chunks, name);
  Fingerprint sum;
  for (Rank rank = ranks.from; rank < ranks.to; ++rank) sum = sum + contribution(rank, name);
  return sum;
}

}  // namespace pc
