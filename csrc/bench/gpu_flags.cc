#include "bench/gpu_flags.h"

#include <array>
#include <string>

#include "bench/numbers.h"

namespace pc::bench {
namespace {

Status set_device(Words& words, const std::string& value) {
  if (value != "cpu" && value != "cuda")
    return invalid_argument("there is no device '" + value + "', there are cpu and cuda");
  words.options.gpu.asked = value == "cuda";
  return Status::ok();
}

Status set_way(Words& words, const std::string& value) {
  GpuWay& way = words.options.gpu.way;
  if (value == "auto") return way = GpuWay::kAuto, Status::ok();
  if (value == "nccl") return way = GpuWay::kNccl, Status::ok();
  if (value == "staged") return way = GpuWay::kStaged, Status::ok();
  return invalid_argument("there is no way '" + value + "', there are auto, nccl and staged");
}

Status set_devices(Words& words, const std::string& value) {
  for (const std::string& word : split(value)) {
    PC_ASSIGN_OR_RETURN(const uint64_t device, whole_number(word, 0, 1023));
    words.options.gpu.devices.push_back(static_cast<int>(device));
  }
  return Status::ok();
}

template <bool GpuOptions::*member>
Status set_switch(Words& words, const std::string& value) {
  return take(whole_number(value, 0, 1), words.options.gpu.*member);
}
template <bool GpuOptions::*member>
Status set_on(Words& words, const std::string&) {
  words.options.gpu.*member = true;
  return Status::ok();
}
template <uint64_t GpuOptions::*member, uint64_t least>
Status set_number(Words& words, const std::string& value) {
  return take(whole_number(value, least, 1'000'000), words.options.gpu.*member);
}

constexpr std::array<Flag, 14> kGpuFlags = {{
    {"", "--device", true, set_device},
    {"", "--way", true, set_way},
    {"", "--raw", false, set_on<&GpuOptions::raw>},
    {"", "--copy", false, set_on<&GpuOptions::copy>},
    {"", "--gpus", true, set_devices},
    {"", "--allow-shared-gpu", false, set_on<&GpuOptions::share>},
    {"-t", "--nthreads", true, set_number<&GpuOptions::threads, 1>},
    {"-g", "--ngpus", true,
     [](Words&, const std::string& value) {
       return value == "1"
                  ? Status::ok()
                  : invalid_argument("a rank has one GPU, so 1 alone: -n says how many ranks there are");
     }},
    {"-m", "--agg_iters", true, set_number<&GpuOptions::aggregated, 1>},
    {"-G", "--cudagraph", true, set_number<&GpuOptions::graph_launches, 0>},
    {"-z", "--blocking", true, set_switch<&GpuOptions::blocking>},
    {"-C", "--report_cputime", true, set_switch<&GpuOptions::host_time>},
    {"-a", "--average", true,
     [](Words& words, const std::string& value) {
       return take(whole_number(value, 0, 3), words.options.gpu.average);
     }},
    {"-N", "--run_cycles", true, set_number<&GpuOptions::cycles, 0>},
}};

constexpr std::array<RefusedFlag, 12> kRefused = {{
    {"-p", "--parallel_init", "every rank joins by itself, all at once"},
    {"-y", "--stream_null", "calls go on a stream of the benchmark's own"},
    {"-R", "--local_register", "arrays are not registered with NCCL"},
    {"-S", "--report_timestamps", "rows have no time of day"},
    {"-J", "--output_file", "--json prints the rows, and a file is where the shell puts them"},
    {"-F", "--output_format", "--json prints the rows"},
    {"-u", "--unalign", "arrays begin where the driver puts them"},
    {"-I", "--per_iter_timing",
     "many calls are queued, and one wait ends them all: single ones have no time"},
    {"-K", "--per_iter_skip", "single calls have no time"},
    {"-M", "--memory_report", "NCCL is not asked for its memory"},
    {"-x", "--cta_policy", "NCCL decides, or its environment (NCCL_CTA_POLICY)"},
    {"-D", "--device_implementation", "NCCL decides which kernels it uses"},
}};

}  // namespace

std::span<const Flag> gpu_flags() { return kGpuFlags; }
std::span<const RefusedFlag> refused_flags() { return kRefused; }

}  // namespace pc::bench
