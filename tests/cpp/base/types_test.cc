#include "base/types.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>

namespace pc {
namespace {

TEST(Types, every_dtype_is_found_again_by_its_name) {
  for (int d = 0; d < kDTypeCount; ++d) {
    const DType dtype = static_cast<DType>(d);
    EXPECT_EQ(dtype_from_name(name_of(dtype)), dtype) << name_of(dtype);
  }
  EXPECT_EQ(dtype_from_name("float"), std::nullopt);
  EXPECT_EQ(dtype_from_name(""), std::nullopt);
}

TEST(Types, sizes_are_those_of_the_element_types) {
  EXPECT_EQ(size_of(DType::kBool), sizeof(bool));
  EXPECT_EQ(size_of(DType::kU8), sizeof(uint8_t));
  EXPECT_EQ(size_of(DType::kI16), sizeof(int16_t));
  EXPECT_EQ(size_of(DType::kBF16), 2u);
  EXPECT_EQ(size_of(DType::kF16), 2u);
  EXPECT_EQ(size_of(DType::kF32), sizeof(float));
  EXPECT_EQ(size_of(DType::kF64), sizeof(double));
  EXPECT_EQ(size_of(DType::kC128), 2 * sizeof(double));
  for (int d = 0; d < kDTypeCount; ++d) {  // NumPy's names end in the number of bits
    const std::string_view name = name_of(static_cast<DType>(d));
    const std::string bits = std::to_string(8 * size_of(static_cast<DType>(d)));
    const bool ends_otherwise = name == "bool" || name == "bytes" || name.starts_with("float8");
    EXPECT_TRUE(ends_otherwise || name.ends_with(bits)) << name;
  }
}

TEST(Types, every_op_is_found_by_its_name_and_its_alias) {
  for (int o = 0; o < kNamedOpCount; ++o) {
    EXPECT_EQ(op_from_name(name_of(static_cast<ReduceOp>(o))), static_cast<ReduceOp>(o));
  }
  EXPECT_EQ(op_from_name("mean"), ReduceOp::kAvg);
  EXPECT_EQ(op_from_name("add"), ReduceOp::kSum);
  EXPECT_EQ(op_from_name("Sum"), std::nullopt);
  EXPECT_EQ(op_from_name("scaled sum"), std::nullopt);  // it takes a factor
}

TEST(Types, the_text_of_a_reduction_has_its_factor) {
  EXPECT_EQ(text_of(ReduceOp::kMax), "max");
  EXPECT_EQ(text_of({ReduceOp::kScaledSum, 0.5}), "scaled sum x0.5");
  EXPECT_NE(text_of({ReduceOp::kScaledSum, 0.1}), text_of({ReduceOp::kScaledSum, std::nextafter(0.1, 1.0)}));
}

TEST(Types, opaque_elements_are_named_and_counted_as_their_owner_does) {
  const Layout dates{"datetime64[D]", 8, 7}, nothing{"|V0", 0, 8};
  EXPECT_EQ(array_text(DType::kF32, 5, nullptr), "float32[5]");
  EXPECT_EQ(array_text(DType::kOpaque, 24, &dates), "datetime64[D][3]");
  EXPECT_EQ(array_text(DType::kOpaque, 24, nullptr), "bytes[24]");
  EXPECT_EQ(array_text(DType::kOpaque, 0, &nothing), "|V0[0]");
}

TEST(Types, a_view_knows_its_bytes_and_becomes_a_view_of_constants) {
  std::byte memory[24];
  const Buffer buffer{memory, 3, DType::kF64, {}};
  EXPECT_EQ(buffer.nbytes(), 24u);
  const ConstBuffer constant = buffer;
  EXPECT_EQ(constant.data, memory);
  EXPECT_EQ(constant.nbytes(), 24u);
  const Layout layout{"datetime64[D]", 8, 7};
  EXPECT_EQ(ConstBuffer(Buffer{memory, 3, DType::kOpaque, {}, &layout}).layout, &layout);
  EXPECT_EQ(Buffer().nbytes(), 0u);
  EXPECT_EQ((ConstBuffer(nullptr, std::size_t{1} << 40, DType::kF64)).nbytes(), std::size_t{1} << 43);
}

}  // namespace
}  // namespace pc
