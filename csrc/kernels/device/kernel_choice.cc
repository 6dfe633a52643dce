#include "kernels/device/kernel_choice.h"

#include <algorithm>
#include <string_view>

#include "kernels/kernel_table.h"

namespace pc {
namespace {

enum class Kind { kTruth, kWhole, kShortFloat, kFloat, kComplex, kBytes };

// The properties of a type that the kernels need.
struct Element {
  Kind kind;
  std::string_view name;  // in the names of its kernels
  uint32_t part_nbytes;   // its alignment
  uint64_t one = 1;       // the bits of the value 1
  // For floats, the bits of the largest magnitude that is no NaN: infinity or, in float8_e4m3fn,
  // which has no infinity, the largest number.
  uint64_t largest = ~uint64_t{0};
  bool has_sign = false;
};
// Returns the name of the unsigned type of that size. Its kernels also serve the signed type,
// because they treat the sign as an ordinary bit.
std::string_view unsigned_name(std::size_t nbytes) {
  switch (nbytes) {
    case 1: return "u8";
    case 2: return "u16";
    case 4: return "u32";
    default: return "u64";
  }
}
Element signed_whole(uint32_t nbytes) {
  return {Kind::kWhole, unsigned_name(nbytes), nbytes, 1, ~uint64_t{0}, true};
}
Element element_of(DType dtype) {
  using enum DType;
  switch (dtype) {
    case kBool: return {Kind::kTruth, "u8", 1};
    case kU8: return {Kind::kWhole, "u8", 1};
    case kI8: return signed_whole(1);
    case kU16: return {Kind::kWhole, "u16", 2};
    case kI16: return signed_whole(2);
    case kU32: return {Kind::kWhole, "u32", 4};
    case kI32: return signed_whole(4);
    case kU64: return {Kind::kWhole, "u64", 8};
    case kI64: return signed_whole(8);
    case kF16: return {Kind::kShortFloat, "f16", 2, 0x3c00, 0x7c00, true};
    case kBF16: return {Kind::kShortFloat, "bf16", 2, 0x3f80, 0x7f80, true};
    case kF32: return {Kind::kFloat, "f32", 4, 0x3f800000, 0x7f800000, true};
    case kF64: return {Kind::kFloat, "f64", 8, 0x3ff0000000000000, 0x7ff0000000000000, true};
    case kC64: return {Kind::kComplex, "c64", 4};
    case kC128: return {Kind::kComplex, "c128", 8};
    case kF8E4M3FN: return {Kind::kShortFloat, "e4m3fn", 1, 0x38, 0x7e, true};
    case kF8E5M2: return {Kind::kShortFloat, "e5m2", 1, 0x3c, 0x7c, true};
    default: return {Kind::kBytes, "", 1};  // opaque, or without kernels
  }
}
bool is_float(const Element& element) {
  return element.kind == Kind::kFloat || element.kind == Kind::kShortFloat;
}
// Sums and weights of complex numbers are computed on their parts.
std::string_view part_name(const Element& element) {
  if (element.kind != Kind::kComplex) return element.name;
  return element.part_nbytes == 4 ? "f32" : "f64";
}

// A step and the type of its elements, which together name a kernel. The step is empty if there is
// no such kernel.
struct Choice {
  std::string_view step, element;
  std::size_t nbytes;  // size of one element of the kernel
};
constexpr Choice kNone = {"", "", 0};

Choice choose(DType dtype, ReduceOp op) {
  using enum ReduceOp;
  const Element element = element_of(dtype);
  const std::size_t part = element.part_nbytes;
  const bool is_complex = element.kind == Kind::kComplex;
  const std::string_view by_its_bits = unsigned_name(part);
  if (element.kind == Kind::kBytes) return kNone;
  if (element.kind == Kind::kTruth) {
    return op < kAvg || (op >= kBAnd && op <= kLXor) ? Choice{"truth", "u8", 1} : kNone;
  }
  switch (op) {
    case kSum: return {"sum", part_name(element), part};
    case kProd:
      return is_complex ? Choice{"prod", element.name, 2 * part} : Choice{"prod", part_name(element), part};
    case kMin:
    case kMax: return is_complex ? kNone : Choice{"extreme", by_its_bits, part};
    case kAvg:
    case kScaledSum:
      return is_float(element) || is_complex ? Choice{"weighted", part_name(element), part} : kNone;
    case kBAnd:
    case kBOr:
    case kBXor: return element.kind == Kind::kWhole ? Choice{"bits", by_its_bits, part} : kNone;
    case kLAnd:
    case kLOr:
    case kLXor: return is_complex ? kNone : Choice{"truth", by_its_bits, part};
    case kMinLoc:
    case kMaxLoc: {
      if (part == 1 || is_complex || element.kind == Kind::kShortFloat) return kNone;
      return {"place", by_its_bits, 2 * part};
    }
  }
  return kNone;
}

// ---- the arguments of the steps

void set_masks(device::ReduceArguments& arguments, DType dtype, ReduceOp op) {
  using enum ReduceOp;
  const Element element = element_of(dtype);
  const bool all_of = op == kProd || op == kMin || op == kBAnd || op == kLAnd;
  const bool one_of = op == kBXor || op == kLXor;
  arguments.both = one_of ? 0 : ~uint64_t{0};
  arguments.one_of_them = all_of ? 0 : ~uint64_t{0};
  const uint64_t sign = uint64_t{1} << (8 * element.part_nbytes - 1);
  arguments.magnitude = is_float(element) ? ~sign : ~uint64_t{0};  // -0 is not true
  arguments.truth = element.one;
}

void set_order(device::ReduceArguments& arguments, DType dtype, ReduceOp op) {
  const Element element = element_of(dtype);
  const uint64_t sign = uint64_t{1} << (8 * element.part_nbytes - 1);
  const bool from_largest = op == ReduceOp::kMax || op == ReduceOp::kMaxLoc;
  arguments.location_flip = element.has_sign ? sign : 0;
  arguments.flip = from_largest ? ~arguments.location_flip : arguments.location_flip;
  arguments.when_negative = is_float(element) ? ~sign : 0;
  arguments.largest = element.largest;
}

template <class T>
device::StepFactors scaled(const Weights& weights, double factor) {
  const ScaleFactors<T> f = scale_factors<T>({nullptr, nullptr, nullptr, 0, weights, factor});
  return {f.a, f.b, 1};
}
device::StepFactors factors_of(DType dtype, const Reduction& how, const Weights& weights) {
  const Element element = element_of(dtype);
  const bool in_float64 = element.part_nbytes == 8;
  if (how.op == ReduceOp::kScaledSum) {
    return in_float64 ? scaled<double>(weights, how.factor) : scaled<float>(weights, how.factor);
  }
  if (element.kind == Kind::kShortFloat) {
    const MeanFactors f = mean_factors(weights);
    return {f.a, f.b, f.divisor};
  }
  return {1, 1, completes(weights) ? static_cast<double>(weights.total) : 1};
}

// Step k combines the result of sources 0 to k - 1 with source k. A single source can only be
// scaled.
void set_steps(device::ReduceArguments& arguments, const DeviceReduction& reduction) {
  if (reduction.how.op != ReduceOp::kAvg && reduction.how.op != ReduceOp::kScaledSum) return;
  const auto held_by = [&](std::size_t k) {
    return reduction.contributions.empty() ? 1 : reduction.contributions[k];
  };
  uint32_t in_sources = 0;
  for (std::size_t k = 0; k < reduction.from.size(); ++k) in_sources += held_by(k);
  const uint32_t total = reduction.total != 0 ? reduction.total : in_sources;
  uint32_t so_far = held_by(0);
  arguments.steps[0] = {1, 1, 1};
  if (reduction.from.size() == 1 && reduction.how.op == ReduceOp::kScaledSum) {
    arguments.steps[0] = factors_of(reduction.dtype, reduction.how, {so_far, 0, total});
  }
  for (std::size_t k = 1; k < reduction.from.size(); ++k) {
    arguments.steps[k - 1] = factors_of(reduction.dtype, reduction.how, {so_far, held_by(k), total});
    so_far += held_by(k);
  }
}

// ---- alignment

uintptr_t address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

// Collects the bits in which any address differs from the first address, and the bits that are set
// in any address.
struct Addresses {
  uintptr_t first, differing = 0, any = 0;
  explicit Addresses(const void* pointer) : first(address(pointer)) { add(pointer); }
  void add(const void* pointer) {
    differing |= address(pointer) ^ first;
    any |= address(pointer);
  }
};

void set_vectors(device::ReduceArguments& arguments, const Addresses& addresses, std::size_t element_nbytes) {
  if (addresses.differing % device::kVectorBytes != 0) return;
  const std::size_t head_nbytes =
      (device::kVectorBytes - addresses.first % device::kVectorBytes) % device::kVectorBytes;
  if (head_nbytes % element_nbytes != 0) return;
  const std::size_t per_vector = device::kVectorBytes / element_nbytes;
  arguments.head = std::min<uint64_t>(head_nbytes / element_nbytes, arguments.count);
  arguments.in_vectors = (arguments.count - arguments.head) / per_vector * per_vector;
}

Status check_number(std::size_t number, int most, std::string_view what) {
  if (number >= 1 && number <= static_cast<std::size_t>(most)) return Status::ok();
  return Status(Code::kInvalidArgument, "a kernel takes 1 to " + std::to_string(most) + " " +
                                            std::string(what) + ", not " + std::to_string(number));
}

}  // namespace

std::optional<std::string> reduce_kernel(DType dtype, ReduceOp op) {
  const Choice choice = choose(dtype, op);
  if (choice.step.empty()) return std::nullopt;
  return "pc_" + std::string(choice.step) + "_" + std::string(choice.element);
}

Result<device::ReduceArguments> reduce_arguments(const DeviceReduction& reduction) {
  const DType dtype = reduction.dtype;
  const Choice choice = choose(dtype, reduction.how.op);
  if (choice.step.empty()) {
    return Status(Code::kUnsupported, "there is no " + std::string(name_of(reduction.how.op)) + " of " +
                                          std::string(name_of(dtype)) + " (docs/dtypes.md)");
  }
  PC_TRY(check_number(reduction.from.size(), device::kMostSources, "sources"));
  PC_TRY(check_number(reduction.to.size(), device::kMostOutputs, "outputs"));
  if (!reduction.contributions.empty() && reduction.contributions.size() != reduction.from.size()) {
    return Status(Code::kInvalidArgument, std::to_string(reduction.contributions.size()) +
                                              " numbers of contributions for " +
                                              std::to_string(reduction.from.size()) + " sources");
  }
  device::ReduceArguments arguments = {};
  Addresses addresses(reduction.from[0]);
  for (std::size_t k = 0; k < reduction.from.size(); ++k)
    addresses.add(arguments.from[k] = reduction.from[k]);
  for (std::size_t j = 0; j < reduction.to.size(); ++j) addresses.add(arguments.to[j] = reduction.to[j]);
  if (const uint32_t part = element_of(dtype).part_nbytes; addresses.any % part != 0) {
    return Status(Code::kInvalidArgument, std::string(name_of(dtype)) +
                                              " in a GPU's memory must be aligned to " +
                                              std::to_string(part) + " bytes: copy the array");
  }
  arguments.sources = static_cast<int32_t>(reduction.from.size());
  arguments.outputs = static_cast<int32_t>(reduction.to.size());
  arguments.count = reduction.count * size_of(dtype) / choice.nbytes;
  set_vectors(arguments, addresses, choice.nbytes);
  set_masks(arguments, dtype, reduction.how.op);
  set_order(arguments, dtype, reduction.how.op);
  set_steps(arguments, reduction);
  return arguments;
}

Result<device::CopyArguments> copy_arguments(std::span<void* const> to, const void* from,
                                             std::size_t nbytes) {
  PC_TRY(check_number(to.size(), device::kMostOutputs, "outputs"));
  device::CopyArguments arguments = {};
  Addresses addresses(from);
  arguments.from = from;
  for (std::size_t j = 0; j < to.size(); ++j) addresses.add(arguments.to[j] = to[j]);
  arguments.outputs = static_cast<int32_t>(to.size());
  arguments.nbytes = nbytes;
  arguments.unit = device::kVectorBytes;
  while (addresses.differing % arguments.unit != 0) arguments.unit /= 2;
  if (arguments.unit == 1) return arguments;
  const uint64_t unit = arguments.unit;
  arguments.head = std::min<uint64_t>((unit - addresses.first % unit) % unit, nbytes);
  arguments.in_units = (nbytes - arguments.head) / unit * unit;
  return arguments;
}

LaunchShape launch_shape(std::size_t nbytes, uint32_t multiprocessors) {
  constexpr uint64_t kBlockBytes = uint64_t{device::kThreads} * device::kVectorBytes;
  constexpr uint64_t kMost = 1 << 20, kVectorsOfThread = 4;
  const uint64_t wanted = (nbytes + kBlockBytes - 1) / kBlockBytes, held = 2 * uint64_t{multiprocessors};
  const uint64_t blocks = std::min(wanted, std::max(held, wanted / kVectorsOfThread));
  return {static_cast<uint32_t>(std::clamp<uint64_t>(blocks, 1, kMost)), device::kThreads};
}

}  // namespace pc
