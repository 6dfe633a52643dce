#include "plan/contracts.h"

namespace pc {
namespace {

// splitmix64's finalizer (Steele, Lea, Flood, 2014): neighbouring numbers get unrelated words.
uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}
uint64_t word_for(uint64_t kind, Rank rank, uint32_t chunk) {
  return mixed(mixed(kind) + (static_cast<uint64_t>(rank) << 32) + chunk);
}

}  // namespace

bool has_input(const Shape& shape) {
  switch (shape.collective) {
    case Collective::kAllreduce:
    case Collective::kReduce: return true;
    case Collective::kBroadcast: return shape.rank == shape.root;
    case Collective::kBarrier: return false;
  }
  return false;
}

bool has_output(const Shape& shape) {
  switch (shape.collective) {
    case Collective::kAllreduce:
    case Collective::kBroadcast: return true;
    case Collective::kReduce: return shape.rank == shape.root;
    case Collective::kBarrier: return false;
  }
  return false;
}

Fingerprint operator+(const Fingerprint& a, const Fingerprint& b) {
  return {a.word + b.word, a.contributions + b.contributions};
}

Fingerprint contribution(Rank rank, uint32_t chunk) { return {word_for(1, rank, chunk), 1}; }

Fingerprint never_written(Rank rank, Area area, uint32_t chunk) {
  const uint64_t kind = 2 + static_cast<uint64_t>(area);
  return {word_for(kind, rank, chunk), mixed(word_for(kind, rank, chunk))};
}

Fingerprint wanted_output(const Shape& shape, uint32_t chunk) {
  if (shape.collective == Collective::kBroadcast) return contribution(shape.root, chunk);
  Fingerprint sum;
  for (Rank rank = 0; rank < shape.size; ++rank) sum = sum + contribution(rank, chunk);
  return sum;
}

bool synchronizes(Collective collective) { return collective == Collective::kBarrier; }
bool moves_data(Collective collective) { return collective != Collective::kBarrier; }

}  // namespace pc
