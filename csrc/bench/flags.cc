#include "bench/flags.h"

#include <array>

#include "bench/numbers.h"
#include "bench/patterns.h"

namespace pc::bench {
namespace {

// ---- one function per kind of value

// Stores the value of a flag if it is valid.
template <class T, class Into>
Status take(const Result<T>& value, Into& into) {
  if (value.is_ok()) into = static_cast<Into>(value.value());
  return value.status();
}

template <auto member, uint64_t least, uint64_t most>
Status set_number(Words& words, const std::string& value) {
  return take(whole_number(value, least, most), words.*member);
}
template <auto member>
Status set_bytes(Words& words, const std::string& value) {
  return take(number_of_bytes(value), words.*member);
}
template <auto member>
Status set_text(Words& words, const std::string& value) {
  words.*member = value;
  return Status::ok();
}
template <auto member>
Status set_on(Words& words, const std::string&) {
  words.*member = true;
  return Status::ok();
}
template <bool in, bool out>
Status set_places(Words& words, const std::string&) {
  words.in_place = in;
  words.out_of_place = out;
  return Status::ok();
}

// Returns the index of `value` in `names`.
template <std::size_t count>
Result<std::size_t> one_of(const std::string& kind, const std::string& value,
                           const std::array<const char*, count>& names) {
  std::string all;
  for (std::size_t i = 0; i < count; ++i) {
    if (value == names[i]) return i;
    all += std::string(i == 0 ? "" : i + 1 == count ? " and " : ", ") + names[i];
  }
  return invalid_argument("there is no " + kind + " '" + value + "', there are " + all);
}

Status set_device(Words& words, const std::string& value) {
  return take(one_of("device", value, std::array{"cpu", "cuda"}), words.device);
}

Status set_backend(Words& words, const std::string& value) {
  return take(one_of("way", value, std::array{"auto", "nccl", "staged"}), words.backend);
}

Status set_transport(Words& words, const std::string& value) {
  PC_TRY(one_of("transport", value, std::array{"auto", "tcp", "shm"}).status());
  return set_text<&Options::transport>(words, value);
}

// Appends the result of `one` for each word of `value`.
template <class T, class One>
Status take_list(const std::string& value, std::vector<T>& into, One one) {
  for (const std::string& word : split(value)) {
    PC_ASSIGN_OR_RETURN(const auto each, one(word));
    into.push_back(static_cast<T>(each));
  }
  return Status::ok();
}

Status set_sizes(Words& words, const std::string& value) {
  return take_list(value, words.sizes, number_of_bytes);
}

Status set_gpus(Words& words, const std::string& value) {
  return take_list(value, words.gpus, [](const std::string& word) { return whole_number(word, 0, 1023); });
}

// Accepts NumPy's names, and three names of nccl-tests.
Result<DType> dtype_called(const std::string& name) {
  if (name == "half") return DType::kF16;
  if (name == "float") return DType::kF32;
  if (name == "double") return DType::kF64;
  if (const std::optional<DType> dtype = dtype_from_name(name)) return *dtype;
  return invalid_argument("there is no datatype '" + name + "'");
}

Status set_dtypes(Words& words, const std::string& value) {
  words.dtypes.clear();
  return value == "all" ? Status::ok() : take_list(value, words.dtypes, dtype_called);
}

Result<ReduceOp> op_called(const std::string& name) {
  if (const std::optional<ReduceOp> op = op_from_name(name); op && has_pattern(*op)) return *op;
  return invalid_argument("'" + name + "' is not one of sum, prod, min, max, avg");
}

Status set_ops(Words& words, const std::string& value) {
  words.ops.clear();
  return value == "all" ? Status::ok() : take_list(value, words.ops, op_called);
}

Status set_root(Words& words, const std::string& value) {
  words.root.reset();
  if (value == "rotate") return Status::ok();
  return take(whole_number(value, 0, 65534), words.root);
}

Status set_group(Words& words, const std::string& value) {
  return value.empty() ? invalid_argument("'' names no ranks") : set_text<&Options::group>(words, value);
}

Status set_timeout(Words& words, const std::string& value) { return take(seconds(value), words.timeout_s); }

Status set_gpus_of_a_rank(Words&, const std::string& value) {
  if (value == "1") return Status::ok();
  return invalid_argument("a rank has one GPU, so 1 alone: -n says how many ranks there are");
}

// ---- the flags

constexpr Flag refused(std::string_view brief, std::string_view name, std::string_view why) {
  return {.brief = brief, .name = name, .refusal = why};
}

constexpr uint64_t kMillion = 1'000'000, kMostIterations = 10 * kMillion;
constexpr bool kValue = true, kNoValue = false;
constexpr GoesWith kCpu = GoesWith::kCpu, kCuda = GoesWith::kCuda;

constexpr std::array kFlags = {
    Flag{"-n", "--ranks", kValue, set_number<&Options::ranks, 1, 1024>},
    Flag{"-b", "--minbytes", kValue, set_bytes<&Words::first>},
    Flag{"-e", "--maxbytes", kValue, set_bytes<&Words::last>},
    Flag{"-i", "--stepbytes", kValue, set_bytes<&Words::step>},
    Flag{"-f", "--stepfactor", kValue, set_number<&Words::factor, 2, 1 << 20>},
    Flag{"", "--sizes", kValue, set_sizes},
    Flag{"", "--ops", kValue, set_operations},
    Flag{"-d", "--datatype", kValue, set_dtypes},
    Flag{"-o", "--op", kValue, set_ops},
    Flag{"-r", "--root", kValue, set_root},
    Flag{"-w", "--warmup_iters", kValue, set_number<&Options::warm_up, 0, kMostIterations>},
    Flag{"", "--iters", kValue, set_number<&Options::iterations, 1, kMostIterations>},
    Flag{"-c", "--check", kValue, set_number<&Options::checks, 0, 1>},
    Flag{"", "--transport", kValue, set_transport},
    Flag{"", "--group", kValue, set_group, kCpu},
    Flag{"", "--in-place", kNoValue, set_places<true, false>},
    Flag{"", "--out-of-place", kNoValue, set_places<false, true>},
    Flag{"", "--both", kNoValue, set_places<true, true>},
    Flag{"", "--ceilings", kNoValue, set_on<&Options::roofline>, kCpu},
    Flag{"", "--tune", kValue, set_text<&Options::tune>},
    Flag{"", "--timeout_s", kValue, set_timeout},
    Flag{"-T", "--timeout", kValue, set_timeout},
    Flag{"", "--json", kNoValue, set_on<&Options::json>},
    Flag{"", "--explain", kNoValue, set_on<&Options::explain>},
    Flag{"-h", "--help", kNoValue, set_on<&Options::help>},
    Flag{"", "--device", kValue, set_device},
    Flag{"", "--way", kValue, set_backend, kCuda},
    Flag{"", "--raw", kNoValue, set_on<&Options::raw>, kCuda},
    Flag{"", "--copy", kNoValue, set_on<&Options::copy>, kCuda},
    Flag{"", "--gpus", kValue, set_gpus, kCuda},
    Flag{"", "--allow-shared-gpu", kNoValue, set_on<&Options::shares_gpu>, kCuda},
    Flag{"-t", "--nthreads", kValue, set_number<&Options::threads, 1, kMillion>, kCuda},
    Flag{"-g", "--ngpus", kValue, set_gpus_of_a_rank, kCuda},
    Flag{"-m", "--agg_iters", kValue, set_number<&Options::aggregated, 1, kMillion>, kCuda},
    Flag{"-G", "--cudagraph", kValue, set_number<&Options::graph_launches, 0, kMillion>, kCuda},
    Flag{"-z", "--blocking", kValue, set_number<&Options::blocking, 0, 1>, kCuda},
    Flag{"-C", "--report_cputime", kValue, set_number<&Options::host_time, 0, 1>, kCuda},
    Flag{"-a", "--average", kValue, set_number<&Options::average, 0, 3>, kCuda},
    Flag{"-N", "--run_cycles", kValue, set_number<&Options::cycles, 0, kMillion>, kCuda},
    refused("-p", "--parallel_init", "every rank joins by itself, all at once"),
    refused("-y", "--stream_null", "calls go on a stream of the benchmark's own"),
    refused("-R", "--local_register", "arrays are not registered with NCCL"),
    refused("-S", "--report_timestamps", "rows have no time of day"),
    refused("-J", "--output_file", "--json prints the rows, and a file is where the shell puts them"),
    refused("-F", "--output_format", "--json prints the rows"),
    refused("-u", "--unalign", "arrays begin where the driver puts them"),
    refused("-I", "--per_iter_timing",
            "many calls are queued, and one wait ends them all: single ones have no time"),
    refused("-K", "--per_iter_skip", "single calls have no time"),
    refused("-M", "--memory_report", "NCCL is not asked for its memory"),
    refused("-x", "--cta_policy", "NCCL decides, or its environment (NCCL_CTA_POLICY)"),
    refused("-D", "--device_implementation", "NCCL decides which kernels it uses"),
};

}  // namespace

Status set_operations(Words& words, const std::string& value) {
  words.operations.clear();
  if (value == "all") {
    for (const Operation& operation : operations()) words.operations.push_back(&operation);
    return Status::ok();
  }
  return take_list(value, words.operations, [](const std::string& name) -> Result<const Operation*> {
    if (const Operation* const operation = find_operation(name)) return operation;
    return invalid_argument("there is no operation '" + name + "'");
  });
}

std::span<const Flag> flags() { return kFlags; }

}  // namespace pc::bench
