// The arguments of a kernel launch, passed by value. nvcc and the C++ compiler read this file: it
// has plain numbers and pointers with the same layout in both. kernel_choice.h fills them in.
#pragma once

#include <cstdint>

namespace pc::device {

inline constexpr int kMostSources = 8, kMostOutputs = 8;
inline constexpr uint32_t kThreads = 512;     // threads in a block, for every kernel
inline constexpr uint32_t kVectorBytes = 16;  // bytes that a thread reads at once if the alignment allows

// Step k combines the result of sources 0 to k - 1 with source k. For the short floats and float32,
// the kernel converts these factors to float32, which represents them exactly.
struct StepFactors {
  double a, b, divisor;  // (so far * a + source * b) / divisor
};

// outputs[j] = sources[0] (op) sources[1] (op) ..., in this order; all outputs get the same bytes.
// An output may be a source if both have the same address; otherwise it must overlap no source. All
// pointers are aligned to the element (complex numbers: to their parts).
struct ReduceArguments {
  const void* from[kMostSources];
  void* to[kMostOutputs];
  uint64_t count;  // elements of the kernel; a complex number or a pair is one element
  // `head` is the number of elements before the first vector, and `in_vectors` the number of
  // elements in the vectors after them. The other elements are processed one by one. So are all
  // elements if the arrays have different alignments.
  uint64_t head, in_vectors;
  int32_t sources, outputs;
  StepFactors steps[kMostSources - 1];  // used only by Weighted; a single source uses steps[0].a
  // Bits and Truth compute (a & b & both) | ((a ^ b) & one_of_them), which is and, or, or xor.
  uint64_t both, one_of_them;
  uint64_t magnitude, truth;  // Truth: the bits that make an element true, and the result for true
  // Used by Extreme and ExtremePlace: the parameters of the order (element.h). Smaller locations
  // come first even if larger values do.
  uint64_t flip, location_flip, when_negative, largest;
};

// to[j] = from, `nbytes` with any alignment. All outputs get the same bytes; they overlap neither
// the source nor each other.
struct CopyArguments {
  const void* from;
  void* to[kMostOutputs];
  uint64_t nbytes;
  // `head` is the number of bytes before the first unit, and `in_units` the number of bytes in the
  // units after them. All other bytes are copied one by one.
  uint64_t head, in_units;
  // 16, 8, 4 or 2 bytes: all pointers are aligned to it after the head. 1: no common alignment
  uint32_t unit;
  int32_t outputs;
};

}  // namespace pc::device
