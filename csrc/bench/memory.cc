#include "bench/memory.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "bench/patterns.h"

namespace pc::bench {

void FreeMemory::operator()(std::byte* memory) const { std::free(memory); }

Result<Memory> allocate(std::size_t nbytes) {
  constexpr std::size_t kPage = 4096;
  const std::size_t rounded = std::max<std::size_t>(1, (nbytes + kPage - 1) / kPage) * kPage;
  Memory memory(static_cast<std::byte*>(std::aligned_alloc(kPage, rounded)));
  if (!memory) return system_error("allocating " + std::to_string(nbytes) + " bytes", ENOMEM);
  std::memset(memory.get(), 0, rounded);
  return memory;
}

Result<ArrayMemory> ArrayMemory::create(const Kind& kind) {
  ArrayMemory made(kind);
  const Parts parts = kind.operation->parts(kind.size);
  const std::size_t width = size_of(kind.dtype);
  const auto elements = [&](Rank count) { return kind.part * static_cast<uint64_t>(count); };
  const bool in_is_larger = parts.in > parts.out;
  const Rank fewer = std::min(parts.in, parts.out);
  PC_ASSIGN_OR_RETURN(made.larger_, allocate(elements(parts.most()) * width));
  const Buffer larger = {made.larger_.get(), elements(parts.most()), kind.dtype};
  Buffer smaller = {larger.data, elements(fewer), kind.dtype};
  if (!kind.in_place) {
    PC_ASSIGN_OR_RETURN(made.smaller_, allocate(smaller.nbytes()));
    smaller.data = made.smaller_.get();
  } else if (fewer < parts.most()) {
    smaller = made.part_of(larger, kind.rank);
  }
  made.arrays_ = in_is_larger ? Arrays{larger, smaller} : Arrays{smaller, larger};
  return made;
}

Buffer ArrayMemory::part_of(const Buffer& array, Rank part) const {
  Buffer result = array;
  result.data += kind_.part * static_cast<uint64_t>(part) * size_of(kind_.dtype);
  result.count = kind_.part;
  return result;
}

void ArrayMemory::clear() {
  if (arrays_.in.nbytes() > 0) std::memset(arrays_.in.data, 0, arrays_.in.nbytes());
  if (arrays_.out.nbytes() > 0) std::memset(arrays_.out.data, 0, arrays_.out.nbytes());
}

void ArrayMemory::fill(const Asked& asked) {
  constexpr int kPoison = 0xa5;  // what is not written is wrong
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

uint64_t ArrayMemory::count_wrong(const Asked& asked) const {
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
