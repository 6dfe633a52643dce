// What a kernel is told at its launch, by value. Read by nvcc and by C++: plain numbers and pointers, the same layout in
// both. kernel_choice.h fills them in.
#pragma once

#include <cstdint>

namespace pc::device {

inline constexpr int kMostSources = 8, kMostOutputs = 8;
inline constexpr uint32_t kThreads = 512;     // in a block, of every kernel
inline constexpr uint32_t kVectorBytes = 16;  // what a thread reads at once where alignment allows

// Step k combines what has been reduced of sources 0 to k - 1 with source k. The short floats and float32 round these to
// float32, which they fit already.
struct StepFactors {
  double a, b, divisor;  // (so far * a + source * b) / divisor
};

// outputs[j] = sources[0] (op) sources[1] (op) ..., in this order, all outputs the same bytes. An output may be a source,
// element for element; else it must overlap none. All pointers are aligned to the element (complex numbers: to their parts).
struct ReduceArguments {
  const void* from[kMostSources];
  void* to[kMostOutputs];
  uint64_t count;  // elements of the kernel: Complex is one, and so is a pair
  // Elements in front of the first vector, and those in vectors behind them. The rest goes one by one: everything, where the
  // arrays are not aligned alike.
  uint64_t head, in_vectors;
  int32_t sources, outputs;
  StepFactors steps[kMostSources - 1];  // read by Weighted alone; alone, a source takes steps[0].a
  // Read by Bits and Truth: and, or and exclusive or are (a & b & both) | ((a ^ b) & one_of_them).
  uint64_t both, one_of_them;
  uint64_t magnitude, truth;  // Truth: the bits that make an element true, and the result if it is
  // Read by Extreme and ExtremePlace: what makes the order (element.h). Locations go from the smallest, whatever the values do.
  uint64_t flip, location_flip, when_negative, largest;
};

// to[j] = from, `nbytes` of any alignment. All outputs get the same bytes; they overlap neither the source nor each other.
struct CopyArguments {
  const void* from;
  void* to[kMostOutputs];
  uint64_t nbytes;
  uint64_t head,
      in_units;  // bytes in front of the first unit, and those in units behind them; the rest goes byte by byte
  uint32_t unit;  // bytes, 16, 8, 4 or 2: behind the head all pointers are aligned to it. 1: nothing is
  int32_t outputs;
};

}  // namespace pc::device
