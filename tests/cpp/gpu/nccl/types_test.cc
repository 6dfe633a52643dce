// Which reductions NCCL may execute, and with which types.
#include "gpu/nccl/types.h"

#include <gtest/gtest.h>

#include <string>

namespace pc::nccl {
namespace {

// Returns "sum:i32 ...": everything that is not refused, in one line per dtype.
std::string all_of(DType dtype) {
  constexpr const char* kTypes[] = {"i8", "u8", "i32", "u32", "i64", "u64", "f16", "f32", "f64", "bf16"};
  constexpr const char* kOps[] = {"sum", "prod", "max", "min", "avg", "scaled"};
  std::string text;
  for (int i = 0; i < kReduceOpCount; ++i) {
    const ReduceOp op = static_cast<ReduceOp>(i);
    const Result<Reduced> how = reduced(dtype, Reduction(op, 0.5));
    if (!how.is_ok()) {
      EXPECT_EQ(how.status().code(), Code::kUnsupported);
      EXPECT_NE(how.status().message().find(": "), std::string::npos);
      continue;
    }
    const Reduced& as = how.value();
    text += (text.empty() ? "" : " ") + std::string(name_of(op)) + "=" + kOps[static_cast<int>(as.op)] + "." +
            (as.per_element == 2 ? "2" : "") + kTypes[static_cast<int>(as.dtype)];
  }
  return text;
}

TEST(NcclTypes, only_what_means_the_same_is_reduced_by_nccl) {
  EXPECT_EQ(all_of(DType::kBool),
            "sum=max.u8 prod=min.u8 min=min.u8 max=max.u8 band=min.u8 bor=max.u8 land=min.u8 lor=max.u8");
  EXPECT_EQ(all_of(DType::kU8), "sum=sum.u8 prod=prod.u8 min=min.u8 max=max.u8");
  EXPECT_EQ(all_of(DType::kI8), "sum=sum.i8 prod=prod.i8 min=min.i8 max=max.i8");
  EXPECT_EQ(all_of(DType::kI32), "sum=sum.i32 prod=prod.i32 min=min.i32 max=max.i32");
  EXPECT_EQ(all_of(DType::kU32), "sum=sum.u32 prod=prod.u32 min=min.u32 max=max.u32");
  EXPECT_EQ(all_of(DType::kI64), "sum=sum.i64 prod=prod.i64 min=min.i64 max=max.i64");
  EXPECT_EQ(all_of(DType::kU64), "sum=sum.u64 prod=prod.u64 min=min.u64 max=max.u64");
  EXPECT_EQ(all_of(DType::kF16), "sum=sum.f16 prod=prod.f16 scaled sum=scaled.f16");
  EXPECT_EQ(all_of(DType::kBF16), "sum=sum.bf16 prod=prod.bf16 avg=avg.bf16 scaled sum=scaled.bf16");
  EXPECT_EQ(all_of(DType::kF32), "sum=sum.f32 prod=prod.f32 avg=avg.f32 scaled sum=scaled.f32");
  EXPECT_EQ(all_of(DType::kF64), "sum=sum.f64 prod=prod.f64 avg=avg.f64 scaled sum=scaled.f64");
  EXPECT_EQ(all_of(DType::kC64), "sum=sum.2f32 avg=avg.2f32 scaled sum=scaled.2f32");
  EXPECT_EQ(all_of(DType::kC128), "sum=sum.2f64 avg=avg.2f64 scaled sum=scaled.2f64");
  for (const DType none : {DType::kI16, DType::kU16, DType::kF8E4M3FN, DType::kF8E5M2, DType::kOpaque})
    EXPECT_EQ(all_of(none), "") << name_of(none);
}

TEST(NcclTypes, a_refusal_names_both_and_says_why) {
  EXPECT_EQ(
      reduced(DType::kF32, ReduceOp::kMax).status().message(),
      "NCCL cannot reduce float32 with max: it drops a NaN that a rank has, and ours is NaN then on all "
      "ranks");
  EXPECT_NE(
      reduced(DType::kI16, ReduceOp::kSum).status().message().find("int16 with sum: it has no such type"),
      std::string::npos);
}

TEST(NcclTypes, a_factor_is_given_in_the_type_or_not_at_all) {
  const auto scaled = [](DType dtype, double factor) {
    return reduced(dtype, {ReduceOp::kScaledSum, factor});
  };
  EXPECT_EQ(scaled(DType::kF64, 0.1).value().scalar.f64, 0.1);
  EXPECT_EQ(scaled(DType::kF32, 0.1).value().scalar.f32, 0.1f);
  EXPECT_EQ(scaled(DType::kC64, 0.1).value().scalar.f32, 0.1f);
  EXPECT_EQ(scaled(DType::kF16, -1.5).value().scalar.bits16, 0xbe00);
  EXPECT_EQ(scaled(DType::kBF16, -1.5).value().scalar.bits16, 0xbfc0);
  for (const DType half : {DType::kF16, DType::kBF16})
    EXPECT_NE(scaled(half, 0.1).status().message().find("it rounds the factor"), std::string::npos);
}

TEST(NcclTypes, everything_can_be_moved_as_bytes) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType dtype = static_cast<DType>(i);
    EXPECT_EQ(moved(dtype).dtype, DataType::kUint8);
    EXPECT_EQ(moved(dtype).per_element, size_of(dtype));
  }
}

}  // namespace
}  // namespace pc::nccl
