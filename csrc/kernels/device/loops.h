// The loops of the kernels, as one thread of many runs them. Each of `stride` threads processes
// every `stride`-th piece, so together they process all pieces, whatever their number is. nvcc
// compiles the loops for the kernels, and C++ for the tests.
#pragma once

#include "kernels/device/steps.h"

#ifdef __CUDACC__
#define PC_UNROLLED _Pragma("unroll")
#define PC_KEPT _Pragma("unroll 1")  // prevents unrolling
// Elements of 8 bits take many instructions. Unrolling would repeat these for each of the sixteen
// elements of a vector.
#define PC_UNROLLED_UNLESS_SHORT(Element) _Pragma("unroll (sizeof(Element) == 1 ? 1 : 4)")
#else
#define PC_UNROLLED
#define PC_KEPT
#define PC_UNROLLED_UNLESS_SHORT(Element)
#endif

namespace pc::device {

struct ThisThread {
  uint64_t index, stride;  // the thread's number among all threads, and their count
};

// The unit of reading and writing: one aligned access.
template <class Word, int words>
struct alignas(sizeof(Word) * words) [[gnu::may_alias]] Piece {
  static constexpr int kWords = words;
  Word word[words];
};
// One element, of which only the parts must be aligned.
template <class Word>
struct [[gnu::may_alias]] Single {
  static constexpr int kWords = 1;
  Word word[1];
};

// `pieces` pieces from byte `first` on, without the `hole` pieces that follow the first `hole_at`
// pieces.
struct Stretch {
  uint64_t first, pieces;
  uint64_t hole_at = ~uint64_t{0}, hole = 0;
  PC_INLINE uint64_t place_of(uint64_t i) const { return i < hole_at ? i : i + hole; }
};

// The pieces that a thread processes at once: all loads are issued before the first is used.
template <class P, int number>
struct Batch {
  P piece[number] = {};
  PC_INLINE void read(const void* array, const Stretch& stretch, uint64_t start, uint64_t stride) {
    const P* const from = reinterpret_cast<const P*>(static_cast<const char*>(array) + stretch.first);
    PC_UNROLLED
    for (int u = 0; u < number; ++u) {
      const uint64_t i = start + static_cast<uint64_t>(u) * stride;
      if (i < stretch.pieces) piece[u] = from[stretch.place_of(i)];
    }
  }
  PC_INLINE void write(void* array, const Stretch& stretch, uint64_t start, uint64_t stride) const {
    P* const to = reinterpret_cast<P*>(static_cast<char*>(array) + stretch.first);
    PC_UNROLLED
    for (int u = 0; u < number; ++u) {
      const uint64_t i = start + static_cast<uint64_t>(u) * stride;
      if (i < stretch.pieces) to[stretch.place_of(i)] = piece[u];
    }
  }
};

// ---- reductions

// A vector is held in words of several short elements each. If elements were held one by one, each
// would occupy a register.
template <class Element, bool wide = (sizeof(Element) > 4)>
struct WordOf {
  using Type = uint32_t;
};
template <class Element>
struct WordOf<Element, true> {
  using Type = Element;
};

template <class Element>
PC_INLINE Element element_in(uint32_t word, unsigned i) {
  return with_bits_of<Element>(static_cast<Unsigned<Element>>(word >> (8 * sizeof(Element) * i)));
}
template <class Element>
PC_INLINE uint32_t word_with(Element element, unsigned i) {
  return static_cast<uint32_t>(with_bits_of<Unsigned<Element>>(element)) << (8 * sizeof(Element) * i);
}

template <class Step, class Word>
PC_INLINE Word together(const Step& step, Word a, Word b) {
  using Element = typename Step::Element;
  if constexpr (Same<Word, Element>::kYes || Step::kAnyWidth) {
    return step.together(a, b);
  } else {
    Word result = 0;
    PC_UNROLLED_UNLESS_SHORT(Element)
    for (unsigned i = 0; i < sizeof(Word) / sizeof(Element); ++i) {
      result |= word_with(step.together(element_in<Element>(a, i), element_in<Element>(b, i)), i);
    }
    return result;
  }
}
template <class Step, class Word>
PC_INLINE Word alone(const Step& step, Word a) {
  using Element = typename Step::Element;
  if constexpr (Same<Word, Element>::kYes || Step::kAnyWidth) {
    return step.alone(a);
  } else {
    Word result = 0;
    PC_UNROLLED_UNLESS_SHORT(Element)
    for (unsigned i = 0; i < sizeof(Word) / sizeof(Element); ++i) {
      result |= word_with(step.alone(element_in<Element>(a, i)), i);
    }
    return result;
  }
}

// combine(): held = held (op) next. combine_alone(): the reduction of a single source.
template <class Step, class P, int number>
PC_INLINE void combine(const Step& step, Batch<P, number>& held, const Batch<P, number>& next) {
  PC_UNROLLED
  for (int u = 0; u < number; ++u) {
    PC_UNROLLED
    for (int w = 0; w < P::kWords; ++w) {
      held.piece[u].word[w] = together(step, held.piece[u].word[w], next.piece[u].word[w]);
    }
  }
}
template <class Step, class P, int number>
PC_INLINE void combine_alone(const Step& step, Batch<P, number>& held) {
  PC_UNROLLED
  for (int u = 0; u < number; ++u) {
    PC_UNROLLED
    for (int w = 0; w < P::kWords; ++w) held.piece[u].word[w] = alone(step, held.piece[u].word[w]);
  }
}

template <class Step, class P, int number>
PC_INLINE void reduce_stretch(const ReduceArguments& how, const Stretch& stretch, ThisThread self) {
  for (uint64_t start = self.index; start < stretch.pieces; start += number * self.stride) {
    Batch<P, number> held, next;
    held.read(how.from[0], stretch, start, self.stride);
    PC_KEPT
    for (int k = 1; k < how.sources; ++k) {
      next.read(how.from[k], stretch, start, self.stride);
      combine(Step(how, k), held, next);
    }
    if (how.sources == 1) combine_alone(Step(how, 1), held);
    PC_KEPT
    for (int j = 0; j < how.outputs; ++j) held.write(how.to[j], stretch, start, self.stride);
  }
}

template <class Step>
PC_INLINE void reduce(const ReduceArguments& how, ThisThread self) {
  using Element = typename Step::Element;
  using Word = typename WordOf<Element>::Type;
  using Vector = Piece<Word, kVectorBytes / sizeof(Word)>;
  // For short elements two vectors are enough bytes in flight, and long conversions are unrolled
  // less.
  constexpr int kAtOnce = sizeof(Element) < 4 ? 2 : 4;
  Stretch others = {0, how.count};
  if constexpr (Step::kVectors) {
    const uint64_t vectors = how.in_vectors / (kVectorBytes / sizeof(Element));
    reduce_stretch<Step, Vector, kAtOnce>(how, {how.head * sizeof(Element), vectors}, self);
    others = {0, how.count - how.in_vectors, how.head, how.in_vectors};
  }
  reduce_stretch<Step, Single<Element>, 1>(how, others, self);
}

// ---- copies

template <class P>
PC_INLINE void copy_stretch(const CopyArguments& how, const Stretch& stretch, ThisThread self) {
  constexpr int kAtOnce = 4;
  for (uint64_t start = self.index; start < stretch.pieces; start += kAtOnce * self.stride) {
    Batch<P, kAtOnce> held;
    held.read(how.from, stretch, start, self.stride);
    PC_KEPT
    for (int j = 0; j < how.outputs; ++j) held.write(how.to[j], stretch, start, self.stride);
  }
}

PC_INLINE void copy(const CopyArguments& how, ThisThread self) {
  const Stretch units = {how.head, how.in_units / how.unit};
  if (how.unit == 16) copy_stretch<Piece<uint32_t, 4>>(how, units, self);
  if (how.unit == 8) copy_stretch<Piece<uint32_t, 2>>(how, units, self);
  if (how.unit == 4) copy_stretch<Piece<uint32_t, 1>>(how, units, self);
  if (how.unit == 2) copy_stretch<Piece<uint16_t, 1>>(how, units, self);
  const Stretch others = {0, how.nbytes - how.in_units, how.head, how.in_units};
  copy_stretch<Single<uint8_t>>(how, others, self);
}

}  // namespace pc::device
