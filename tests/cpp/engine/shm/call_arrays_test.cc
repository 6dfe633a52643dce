// Combined data is the same in the output and in the ring, with every kind of store.
#include "engine/shm/call_arrays.h"

#include <gtest/gtest.h>

#include <vector>

namespace pc::shm {
namespace {

template <class T>
std::byte* bytes(std::vector<T>& of) {
  return reinterpret_cast<std::byte*>(of.data());
}

TEST(CallArrays, what_is_combined_is_the_same_in_the_output_and_in_the_ring) {
  for (const Stores stores : {Stores::kVector, Stores::kString, Stores::kPastCaches}) {
    for (const std::size_t count : {1UL, 15UL, 2048UL, 2049UL, 40'007UL}) {
      std::vector<float> in(count), out(count, -1), theirs(count), ring(count + 1, -7);
      for (std::size_t i = 0; i < count; ++i) {
        in[i] = static_cast<float>(i % 1000);
        theirs[i] = static_cast<float>(3 * (i % 1000) + 1);
      }
      Request request;
      request.collective = Collective::kAllreduce;
      request.op = ReduceOp::kSum;
      request.in.data = bytes(in);
      request.in.count = count;
      request.in.dtype = DType::kF32;
      request.out.data = bytes(out);
      request.out.count = count;
      request.out.dtype = DType::kF32;
      CallArrays arrays;
      arrays.bind(request, 1 << 20);
      for (const bool has_output : {true, false}) {
        const std::byte* sources[] = {bytes(theirs), nullptr};
        std::fill(ring.begin(), ring.end(), -7);
        arrays.combine(sources, 0, has_output ? 0 : CallArrays::kNowhere, 4 * count, bytes(ring), stores);
        for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(ring[i], in[i] + theirs[i]) << i;
        ASSERT_EQ(ring[count], -7);
      }
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(out[i], in[i] + theirs[i]) << i;
    }
  }
}

}  // namespace
}  // namespace pc::shm
