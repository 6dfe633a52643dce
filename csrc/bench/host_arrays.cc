#include "bench/host_arrays.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/round_up.h"
#include "bench/patterns.h"

namespace pc::bench {

constexpr std::size_t kPage = 4096;

void FreeMemory::operator()(std::byte* memory) const { std::free(memory); }

Result<Memory> allocate(std::size_t nbytes) {
  const std::size_t rounded = round_up(std::max<std::size_t>(1, nbytes), kPage);
  Memory memory(static_cast<std::byte*>(std::aligned_alloc(kPage, rounded)));
  if (!memory) return system_error("allocating " + std::to_string(nbytes) + " bytes", ENOMEM);
  std::memset(memory.get(), 0, rounded);
  return memory;
}

// Out of place, the smaller array follows the larger one, on its own page. In place, both are one
// array if they have the same size; otherwise the smaller array is this rank's part of the larger
// one.
Result<HostArrays> HostArrays::create(const ArrayKind& kind) {
  HostArrays made(kind);
  const Parts parts = kind.operation->parts(kind.size);
  const uint64_t in = kind.part * static_cast<uint64_t>(parts.in),
                 out = kind.part * static_cast<uint64_t>(parts.out);
  Buffer larger = {nullptr, std::max(in, out), kind.dtype},
         smaller = {nullptr, std::min(in, out), kind.dtype};
  const std::size_t behind = round_up(larger.nbytes(), kPage);
  made.nbytes_ = kind.in_place ? larger.nbytes() : behind + smaller.nbytes();
  PC_ASSIGN_OR_RETURN(made.memory_, allocate(made.nbytes_));
  larger.data = smaller.data = made.memory_.get();
  if (!kind.in_place) {
    smaller.data += behind;
  } else if (in != out) {
    smaller = made.part_of(larger, kind.rank);
  }
  made.arrays_ = in > out ? Arrays{larger, smaller} : Arrays{smaller, larger};
  return made;
}

Buffer HostArrays::part_of(const Buffer& array, Rank part) const {
  Buffer result = array;
  result.data += kind_.part * static_cast<uint64_t>(part) * size_of(kind_.dtype);
  result.count = kind_.part;
  return result;
}

void HostArrays::fill(const Asked& asked) {
  constexpr int kPoison = 0xa5;  // makes an unwritten element wrong
  for (const Buffer& each : {arrays_.out, arrays_.in})
    if (each.nbytes() > 0) std::memset(each.data, kPoison, each.nbytes());
  const Rank parts = kind_.operation->parts(kind_.size).in;
  for (Rank part = 0; part < parts; ++part) {
    const auto element = [&](uint64_t i) {
      return kind_.operation->input(asked, {kind_.rank, kind_.size, part, i});
    };
    Pattern(kind_.dtype, element).fill(part_of(arrays_.in, part));
  }
  before_.clear();
  if (!kind_.operation->has_result(asked, kind_.rank, kind_.size))
    before_.assign(arrays_.out.data, arrays_.out.data + arrays_.out.nbytes());
}

uint64_t HostArrays::count_wrong(const Asked& asked) const {
  uint64_t wrong = 0;
  const std::size_t width = size_of(kind_.dtype);
  for (std::size_t at = 0; at < before_.size(); at += width)
    wrong += std::memcmp(arrays_.out.data + at, before_.data() + at, width) == 0 ? 0 : 1;
  if (!kind_.operation->has_result(asked, kind_.rank, kind_.size)) return wrong;
  const Rank parts = kind_.operation->parts(kind_.size).out;
  for (Rank part = 0; part < parts; ++part) {
    const auto element = [&](uint64_t i) {
      return kind_.operation->expected(asked, {kind_.rank, kind_.size, part, i});
    };
    wrong += Pattern(kind_.dtype, element).count_wrong(part_of(arrays_.out, part));
  }
  return wrong;
}

}  // namespace pc::bench
