#include "gpu/nccl/types.h"

#include <optional>
#include <string>

#include "kernels/float16.h"

namespace pc::nccl {
namespace {

struct Element {
  DataType dtype;
  std::size_t per_element = 1;
};

std::optional<Element> element_of(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kU8: return Element{DataType::kUint8};
    case DType::kI8: return Element{DataType::kInt8};
    case DType::kU32: return Element{DataType::kUint32};
    case DType::kI32: return Element{DataType::kInt32};
    case DType::kU64: return Element{DataType::kUint64};
    case DType::kI64: return Element{DataType::kInt64};
    case DType::kF16: return Element{DataType::kFloat16};
    case DType::kBF16: return Element{DataType::kBfloat16};
    case DType::kF32: return Element{DataType::kFloat32};
    case DType::kF64: return Element{DataType::kFloat64};
    case DType::kC64: return Element{DataType::kFloat32, 2};
    case DType::kC128: return Element{DataType::kFloat64, 2};
    default: return std::nullopt;  // NCCL has no such type, or adds differently
  }
}

bool is_complex(DType dtype) { return dtype == DType::kC64 || dtype == DType::kC128; }
bool is_float(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 || dtype == DType::kF64;
}

Status refused(DType dtype, const Reduction& how, std::string why) {
  return Status(Code::kUnsupported, "NCCL cannot reduce " + std::string(name_of(dtype)) + " with " +
                                        text_of(how) + ": " + std::move(why));
}

std::string why_no_element(DType dtype) {
  switch (dtype) {
    case DType::kF8E4M3FN:
    case DType::kF8E5M2:
      return "what is too large it makes the largest finite number, where ours becomes infinity or NaN";
    case DType::kOpaque: return "the meaning of these bytes is unknown";
    default: return "it has no such type";
  }
}

Result<Reduced> reduced_bool(const Reduction& how) {
  switch (how.op) {
    case ReduceOp::kSum:
    case ReduceOp::kMax:
    case ReduceOp::kBOr:
    case ReduceOp::kLOr: return Reduced{DataType::kUint8, RedOp::kMax};
    case ReduceOp::kProd:
    case ReduceOp::kMin:
    case ReduceOp::kBAnd:
    case ReduceOp::kLAnd: return Reduced{DataType::kUint8, RedOp::kMin};
    default: return refused(DType::kBool, how, "it has only what the largest or smallest byte gives");
  }
}

Result<Reduced> reduced_avg(DType dtype, const Element& element, const Reduction& how) {
  if (dtype == DType::kF16) {
    return refused(dtype, how,
                   "it divides each contribution before it adds, and small ones become 0; take bfloat16 or "
                   "float32");
  }
  if (!is_float(dtype) && !is_complex(dtype))
    return refused(dtype, how, "an average of integers would have to round");
  return Reduced{element.dtype, RedOp::kAvg, element.per_element};
}

// Returns the factor in the form in which NCCL reads it, or none if rounding to that form would
// change the factor.
std::optional<Scalar> scalar_of(DataType dtype, double factor) {
  Scalar scalar;
  const float single = static_cast<float>(factor);
  switch (dtype) {
    case DataType::kFloat64: scalar.f64 = factor; return scalar;
    case DataType::kFloat32: scalar.f32 = single; return scalar;
    case DataType::kFloat16: {
      const F16 half = to_f16(single);
      if (to_float(half) != single) return std::nullopt;
      scalar.bits16 = static_cast<uint16_t>(half);
      return scalar;
    }
    case DataType::kBfloat16: {
      const BF16 half = to_bf16(single);
      if (to_float(half) != single) return std::nullopt;
      scalar.bits16 = static_cast<uint16_t>(half);
      return scalar;
    }
    default: return std::nullopt;
  }
}

Result<Reduced> reduced_scaled_sum(DType dtype, const Element& element, const Reduction& how) {
  if (!is_float(dtype) && !is_complex(dtype)) return refused(dtype, how, "that is for floats");
  const std::optional<Scalar> scalar = scalar_of(element.dtype, how.factor);
  if (!scalar)
    return refused(dtype, how, "it rounds the factor to " + std::string(name_of(dtype)) + " first");
  return Reduced{element.dtype, RedOp::kFirstOwn, element.per_element, *scalar};
}

Result<Reduced> reduced_extreme(DType dtype, const Element& element, const Reduction& how) {
  if (is_complex(dtype)) return refused(dtype, how, "complex numbers have no order");
  if (is_float(dtype))
    return refused(dtype, how, "it drops a NaN that a rank has, and ours is NaN then on all ranks");
  return Reduced{element.dtype, how.op == ReduceOp::kMin ? RedOp::kMin : RedOp::kMax};
}

}  // namespace

Result<Reduced> reduced(DType dtype, const Reduction& how) {
  if (dtype == DType::kBool) return reduced_bool(how);
  const std::optional<Element> element = element_of(dtype);
  if (!element) return refused(dtype, how, why_no_element(dtype));
  switch (how.op) {
    case ReduceOp::kSum: return Reduced{element->dtype, RedOp::kSum, element->per_element};
    case ReduceOp::kProd:
      if (is_complex(dtype)) return refused(dtype, how, "it knows no complex numbers");
      return Reduced{element->dtype, RedOp::kProd};
    case ReduceOp::kMin:
    case ReduceOp::kMax: return reduced_extreme(dtype, *element, how);
    case ReduceOp::kAvg: return reduced_avg(dtype, *element, how);
    case ReduceOp::kScaledSum: return reduced_scaled_sum(dtype, *element, how);
    default: return refused(dtype, how, "it has no such operation");
  }
}

}  // namespace pc::nccl
