// The flags of the command line, and what they say.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/options.h"

namespace pc::bench {

struct Flag;

// As written, before it is put together.
struct Words : Options {
  std::optional<uint64_t> first, last, step, factor;  // of a range of sizes
  std::vector<const Operation*> operations = {find_operation("allreduce")};
  std::vector<DType> dtypes = {DType::kF32};  // empty: all
  std::vector<ReduceOp> ops = {ReduceOp::kSum};
  std::optional<Rank> root;                             // nothing: rotates
  bool in_place = false, out_of_place = false;          // neither: as is usual on the device
  const Flag *cpu_flag = nullptr, *gpu_flag = nullptr;  // the first that goes with that device alone
};

enum class GoesWith : uint8_t { kBoth, kCpu, kCuda };  // of --device

struct Flag {
  std::string_view brief, name;
  bool has_value = true;
  Status (*set)(Words&, const std::string& value) = nullptr;  // null: refused
  GoesWith device = GoesWith::kBoth;
  std::string_view refusal = {};  // why this flag of nccl-tests has no meaning here
};

std::span<const Flag> flags();
Status set_operations(Words& words, const std::string& value);  // of --ops

}  // namespace pc::bench
