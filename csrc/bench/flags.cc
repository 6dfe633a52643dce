#include "bench/flags.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "bench/numbers.h"
#include "bench/patterns.h"

namespace pc::bench {
namespace {

// ---- one function per kind of value

Status set_sizes(Words& words, const std::string& value) {
  for (const std::string& word : split(value)) {
    PC_ASSIGN_OR_RETURN(const uint64_t nbytes, number_of_bytes(word));
    words.options.sizes.push_back(nbytes);
  }
  return Status::ok();
}

// NumPy's names, and three of nccl-tests'.
std::optional<DType> dtype_called(const std::string& name) {
  if (name == "half") return DType::kF16;
  if (name == "float") return DType::kF32;
  if (name == "double") return DType::kF64;
  return dtype_from_name(name);
}

Status set_dtypes(Words& words, const std::string& value) {
  words.dtypes.clear();
  if (value == "all") return Status::ok();
  for (const std::string& word : split(value)) {
    const std::optional<DType> dtype = dtype_called(word);
    if (!dtype) return invalid_argument("there is no datatype '" + word + "'");
    words.dtypes.push_back(*dtype);
  }
  return Status::ok();
}

Status set_ops(Words& words, const std::string& value) {
  words.ops.clear();
  if (value == "all") return Status::ok();
  for (const std::string& word : split(value)) {
    const std::optional<ReduceOp> op = op_from_name(word);
    if (!op || !has_pattern(*op))
      return invalid_argument("'" + word + "' is not one of sum, prod, min, max, avg");
    words.ops.push_back(*op);
  }
  return Status::ok();
}

Status set_root(Words& words, const std::string& value) {
  words.root.reset();
  if (value == "rotate") return Status::ok();
  return take(whole_number(value, 0, 65534), words.root);
}

Status set_transport(Words& words, const std::string& value) {
  if (value != "auto" && value != "tcp" && value != "shm")
    return invalid_argument("there is no transport '" + value + "', there are auto, tcp and shm");
  words.options.transport = value;
  return Status::ok();
}

Status set_check(Words& words, const std::string& value) {
  PC_ASSIGN_OR_RETURN(const uint64_t check, whole_number(value, 0, 1));
  words.options.checks = check == 1;
  return Status::ok();
}

Status set_place(Words& words, bool in, bool out) {
  words.says_place = true;
  words.in_place = in;
  words.out_of_place = out;
  return Status::ok();
}

// ---- the flags

constexpr uint64_t kMostIterations = 10'000'000;
constexpr std::array<Flag, 25> kFlags = {{
    {"-n", "--ranks", true,
     [](Words& w, const std::string& v) { return take(whole_number(v, 1, 1024), w.options.ranks); }},
    {"-b", "--minbytes", true,
     [](Words& w, const std::string& v) { return take(number_of_bytes(v), w.first); }},
    {"-e", "--maxbytes", true,
     [](Words& w, const std::string& v) { return take(number_of_bytes(v), w.last); }},
    {"-i", "--stepbytes", true,
     [](Words& w, const std::string& v) { return take(number_of_bytes(v), w.step); }},
    {"-f", "--stepfactor", true,
     [](Words& w, const std::string& v) { return take(whole_number(v, 2, 1 << 20), w.factor); }},
    {"", "--sizes", true, set_sizes},
    {"", "--ops", true, set_operations},
    {"-d", "--datatype", true, set_dtypes},
    {"-o", "--op", true, set_ops},
    {"-r", "--root", true, set_root},
    {"-w", "--warmup_iters", true,
     [](Words& w, const std::string& v) {
       return take(whole_number(v, 0, kMostIterations), w.options.warm_up);
     }},
    {"", "--iters", true,
     [](Words& w, const std::string& v) {
       return take(whole_number(v, 1, kMostIterations), w.options.iterations);
     }},
    {"-c", "--check", true, set_check},
    {"", "--transport", true, set_transport},
    {"", "--group", true,
     [](Words& w, const std::string& v) {
       w.options.group = v;
       return v.empty() ? invalid_argument("'' names no ranks") : Status::ok();
     }},
    {"", "--in-place", false, [](Words& w, const std::string&) { return set_place(w, true, false); }},
    {"", "--out-of-place", false, [](Words& w, const std::string&) { return set_place(w, false, true); }},
    {"", "--both", false, [](Words& w, const std::string&) { return set_place(w, true, true); }},
    {"", "--ceilings", false,
     [](Words& w, const std::string&) {
       w.options.ceilings = true;
       return Status::ok();
     }},
    {"", "--tune", true,
     [](Words& w, const std::string& v) {
       w.options.tune = v;
       return Status::ok();
     }},
    {"", "--timeout_s", true,
     [](Words& w, const std::string& v) { return take(seconds(v), w.options.timeout_s); }},
    {"-T", "--timeout", true,
     [](Words& w, const std::string& v) { return take(seconds(v), w.options.timeout_s); }},
    {"", "--json", false,
     [](Words& w, const std::string&) {
       w.options.json = true;
       return Status::ok();
     }},
    {"", "--explain", false,
     [](Words& w, const std::string&) {
       w.options.explain = true;
       return Status::ok();
     }},
    {"-h", "--help", false,
     [](Words& w, const std::string&) {
       w.options.help = true;
       return Status::ok();
     }},
}};

}  // namespace

Status set_operations(Words& words, const std::string& value) {
  words.operations.clear();
  if (value == "all") {
    for (const Operation& operation : operations()) words.operations.push_back(&operation);
    return Status::ok();
  }
  for (const std::string& word : split(value)) {
    words.operations.push_back(find_operation(word));
    if (words.operations.back() == nullptr) return invalid_argument("there is no operation '" + word + "'");
  }
  return Status::ok();
}

std::span<const Flag> flags() { return kFlags; }

}  // namespace pc::bench
