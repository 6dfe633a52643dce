#include "bench/output.h"

#include <cerrno>
#include <cinttypes>
#include <cstdio>

#include "bench/format.h"

namespace pc::bench {
namespace {

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (static_cast<unsigned char>(c) >= ' ') result += c;
  }
  return result + '"';
}

std::string host_json(const Row& row, bool one_clock) {
  const Half& half = row.half();
  const Latencies& time = half.time.done;
  return format(
      ", \"time_us\": %.3f, \"algbw\": %.6f, \"busbw\": %.6f, \"wrong\": %s, \"p50_us\": %.3f, "
      "\"p99_us\": %.3f, \"iters\": %" PRIu64 ", \"one_clock\": %s, \"in_place\": %s}",
      time.mean_s * 1e6, half.algbw, half.busbw, or_else(half.wrong, "null").c_str(), time.p50_s * 1e6,
      time.p99_s * 1e6, row.iterations, one_clock ? "true" : "false", row.in_place ? "true" : "false");
}

std::string us_json(double seconds) { return format("%.17g", seconds * 1e6); }

// `prefix` is the beginning of the keys: "raw_" for NCCL's own call, "host_" for the host's times,
// or both.
std::string percentiles_json(const std::string& prefix, const Latencies& time) {
  return ", \"" + prefix + "p50\": " + us_json(time.p50_s) + ", \"" + prefix +
         "p99\": " + us_json(time.p99_s);
}

std::string rounds_json(const std::string& prefix, const Times& time) {
  std::string rounds;
  for (const double each : time.rounds_s) rounds += (rounds.empty() ? "" : ", ") + us_json(each);
  return percentiles_json(prefix, time.done) + ", \"" + prefix + "turns\": [" + rounds + "]";
}

std::string half_json(const std::optional<Half>& half) {
  if (!half) return "null";
  std::string text = "{\"time\": " + us_json(half->time.done.mean_s) +
                     format(", \"alg_bw\": %.17g, \"bus_bw\": %.17g", half->algbw, half->busbw) +
                     ", \"nwrong\": " + or_else(half->wrong, "null") +
                     ", \"host_time\": " + us_json(half->time.queued.mean_s) +
                     percentiles_json("host_", half->time.queued);
  if (half->raw)
    text += rounds_json("", half->time) + ", \"raw_time\": " + us_json(half->raw->done.mean_s) +
            ", \"raw_host_time\": " + us_json(half->raw->queued.mean_s) +
            percentiles_json("raw_host_", half->raw->queued) + rounds_json("raw_", *half->raw) +
            ", \"raw_nwrong\": " + or_else(half->raw_wrong, "null");
  return text + "}";
}

// Uses the keys of nccl-tests where they exist.
std::string gpu_json(const RunInfo& run_info, const Row& row, const Route& route) {
  return ", \"out_of_place\": " + half_json(row.out_of_place) + ", \"in_place\": " + half_json(row.in_place) +
         ", \"copy_time\": " + (row.copy_s ? us_json(*row.copy_s) : "null") +
         ", \"actual_iterations\": " + std::to_string(row.iterations) +
         ", \"device\": \"cuda\", \"gpu\": " + quoted(run_info.gpu) +
         ", \"nccl_version\": " + (run_info.nccl.empty() ? "null" : quoted(run_info.nccl)) +
         ", \"way\": " + quoted(std::string(route.backend)) +
         ", \"why_not_nccl\": " + (route.by_nccl.is_ok() ? "null" : quoted(route.by_nccl.message())) + "}";
}

}  // namespace

std::string json_line(const Options& options, const RunInfo& run_info, const Row& row, const Route& route) {
  const Case& what = row.what;
  const std::string root = what.operation->rooted() && !what.root ? "\"rotate\"" : root_of(what);
  return format("{\"collective\": \"%s\", \"ranks\": %d, \"size\": %" PRIu64 ", \"count\": %" PRIu64
                ", \"type\": \"%s\", \"redop\": \"%s\", \"root\": %s",
                std::string(what.operation->name).c_str(), run_info.size(), row.nbytes, row.count,
                type_of(what).c_str(), op_of(what).c_str(), root.c_str()) +
         (options.on_gpus() ? gpu_json(run_info, row, route) : host_json(row, run_info.one_clock));
}

void Output::line(const std::string& text) const {
  if (prints_ && !options_.json) std::printf("%s\n", text.c_str());
}

Status Output::flush() const {
  if (!prints_ || std::fflush(stdout) == 0) return Status::ok();
  return system_error("writing the table", errno);
}

Status Output::begin(const Case& what, const Route& route) {
  const std::string text = heading(options_, run_info_, what, route);
  if (text == heading_) return Status::ok();
  heading_ = text;
  line(text);
  return flush();
}

Status Output::add(const Row& row, const Route& route) {
  for (const std::optional<Half>& half : {row.out_of_place, row.in_place}) {
    if (!half) continue;
    wrong_ += half->wrong.value_or(0);
    raw_wrong_ += half->raw_wrong.value_or(0);
    busbw_ += half->busbw;
    halves_ += row.what.operation->moves_data() ? 1 : 0;
  }
  line(table_lines(options_, row));
  if (prints_ && options_.json) std::printf("%s\n", json_line(options_, run_info_, row, route).c_str());
  return flush();
}

Status Output::close() {
  const auto count = [this](const char* of, uint64_t wrong) {
    line(format("# %-20s : %" PRIu64 " %s", of, wrong, wrong == 0 ? "OK" : "FAILED"));
  };
  count("Out of bounds values", wrong_);
  if (options_.raw) count("of NCCL's own calls", raw_wrong_);
  line(format("# Avg bus bandwidth    : %g", halves_ == 0 ? 0.0 : busbw_ / static_cast<double>(halves_)));
  return flush();
}

Status Output::check_results() const {
  std::string text;
  if (wrong_ != 0) text = std::to_string(wrong_) + " elements of the results are wrong";
  if (raw_wrong_ != 0)
    text += (text.empty() ? "" : ", ") + std::to_string(raw_wrong_) +
            " elements of the results of NCCL's own calls are wrong";
  return text.empty() ? Status::ok() : Status(Code::kInternal, text);
}

std::string table_line(const Roofline& roofline) {
  const bool moves = roofline.nbytes != 0;
  return format("%10s%14s%11.3f%11.3f%9s", std::string(roofline.name).c_str(),
                moves ? std::to_string(roofline.nbytes).c_str() : "-", roofline.time.p50_s * 1e6,
                roofline.time.p99_s * 1e6, moves ? format("%.3f", roofline.gbps()).c_str() : "-");
}

std::string json_line(const Roofline& roofline) {
  return format("{\"ceiling\": \"%s\", \"size\": %" PRIu64
                ", \"p50_us\": %.4f, \"p99_us\": %.4f, "
                "\"iters\": %" PRIu64 "}",
                std::string(roofline.name).c_str(), roofline.nbytes, roofline.time.p50_s * 1e6,
                roofline.time.p99_s * 1e6, roofline.iterations);
}

Status print_roofline(const Options& options) {
  if (!options.json) {
    std::printf(
        "# what this machine can do at best: memcpy and add (a += b, float32) on one core, tcp one way\n"
        "# through the loopback, futex until a thread on another core is awake; GB/s by the median\n"
        "#%9s%14s%11s%11s%9s\n#%9s%14s%11s%11s%9s\n",
        "ceiling", "size", "p50", "p99", "rate", "", "(B)", "(us)", "(us)", "(GB/s)");
  }
  return measure_roofline(options, [&](const Roofline& roofline) {
    std::printf("%s\n", (options.json ? json_line(roofline) : table_line(roofline)).c_str());
    return std::fflush(stdout) == 0 ? Status::ok() : system_error("writing the table", errno);
  });
}

}  // namespace pc::bench
