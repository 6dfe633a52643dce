// The flags of the command line, but for those of --device cuda, and what they say.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/options.h"

namespace pc::bench {

// As written, before it is put together.
struct Words {
  Options options;
  std::optional<uint64_t> first, last, step, factor;  // of a range of sizes
  std::vector<const Operation*> operations = {find_operation("allreduce")};
  std::vector<DType> dtypes = {DType::kF32};  // empty: all
  std::vector<ReduceOp> ops = {ReduceOp::kSum};
  std::optional<Rank> root;  // nothing: rotates
  bool in_place = true, out_of_place = false;
  bool says_place = false;         // by a flag
  std::string gpu_flag, cpu_flag;  // the first that needs --device cuda, or does not go with it
};

struct Flag {
  std::string_view brief, name;
  bool has_value;
  Status (*set)(Words&, const std::string& value);
};

// Keeps the value of a flag, if it is one.
template <class T, class Into>
Status take(const Result<T>& value, Into& into) {
  if (value.is_ok()) into = static_cast<Into>(value.value());
  return value.status();
}

std::span<const Flag> flags();
Status set_operations(Words& words, const std::string& value);  // of --ops

}  // namespace pc::bench
