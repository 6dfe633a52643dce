// The flags of the command line, and how they are parsed.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/options.h"

namespace pc::bench {

struct Flag;

// The flags as written, before they are combined.
struct Words : Options {
  std::optional<uint64_t> first, last, step, factor;  // a range of sizes
  std::vector<const Operation*> operations = {find_operation("allreduce")};
  std::vector<DType> dtypes = {DType::kF32};  // empty: all
  std::vector<ReduceOp> ops = {ReduceOp::kSum};
  std::optional<Rank> root;                     // nullopt: another root in each call
  bool in_place = false, out_of_place = false;  // neither: the device's default
  // the first flag on the command line that requires --device cpu, or cuda
  const Flag *cpu_flag = nullptr, *gpu_flag = nullptr;
};

enum class GoesWith : uint8_t { kBoth, kCpu, kCuda };  // the --device that a flag requires

struct Flag {
  std::string_view brief, name;
  bool has_value = true;
  Status (*set)(Words&, const std::string& value) = nullptr;  // null: the flag is rejected
  GoesWith device = GoesWith::kBoth;
  std::string_view refusal = {};  // why this flag of nccl-tests has no meaning here
};

std::span<const Flag> flags();
Status set_operations(Words& words, const std::string& value);  // sets the value of --ops

}  // namespace pc::bench
