#include "bench/json.h"

#include <cinttypes>

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

// `whose`: of NCCL's own call, of the host, or both.
std::string percentiles_json(const std::string& whose, const Latencies& time) {
  return ", \"" + whose + "p50\": " + us_json(time.p50_s) + ", \"" + whose + "p99\": " + us_json(time.p99_s);
}

std::string turns_json(const std::string& whose, const Times& time) {
  std::string turns;
  for (const double each : time.turns_s) turns += (turns.empty() ? "" : ", ") + us_json(each);
  return percentiles_json(whose, time.done) + ", \"" + whose + "turns\": [" + turns + "]";
}

std::string half_json(const std::optional<Half>& half) {
  if (!half) return "null";
  std::string text = "{\"time\": " + us_json(half->time.done.mean_s) +
                     format(", \"alg_bw\": %.17g, \"bus_bw\": %.17g", half->algbw, half->busbw) +
                     ", \"nwrong\": " + or_else(half->wrong, "null") +
                     ", \"host_time\": " + us_json(half->time.queued.mean_s) +
                     percentiles_json("host_", half->time.queued);
  if (half->raw)
    text += turns_json("", half->time) + ", \"raw_time\": " + us_json(half->raw->done.mean_s) +
            ", \"raw_host_time\": " + us_json(half->raw->queued.mean_s) +
            percentiles_json("raw_host_", half->raw->queued) + turns_json("raw_", *half->raw) +
            ", \"raw_nwrong\": " + or_else(half->raw_wrong, "null");
  return text + "}";
}

// In the keys of nccl-tests, where it has these.
std::string gpu_json(const Scene& scene, const Row& row, const Route& route) {
  return ", \"out_of_place\": " + half_json(row.out_of_place) + ", \"in_place\": " + half_json(row.in_place) +
         ", \"copy_time\": " + (row.copy_s ? us_json(*row.copy_s) : "null") +
         ", \"actual_iterations\": " + std::to_string(row.iterations) +
         ", \"device\": \"cuda\", \"gpu\": " + quoted(scene.gpu) +
         ", \"nccl_version\": " + (scene.nccl.empty() ? "null" : quoted(scene.nccl)) +
         ", \"way\": " + quoted(std::string(route.way)) +
         ", \"why_not_nccl\": " + (route.by_nccl.is_ok() ? "null" : quoted(route.by_nccl.message())) + "}";
}

}  // namespace

std::string json_line(const Options& options, const Scene& scene, const Row& row, const Route& route) {
  const Case& what = row.what;
  const std::string root = what.operation->rooted() && !what.root ? "\"rotate\"" : root_of(what);
  return format("{\"collective\": \"%s\", \"ranks\": %d, \"size\": %" PRIu64 ", \"count\": %" PRIu64
                ", \"type\": \"%s\", \"redop\": \"%s\", \"root\": %s",
                std::string(what.operation->name).c_str(), scene.size(), row.nbytes, row.count,
                type_of(what).c_str(), op_of(what).c_str(), root.c_str()) +
         (options.on_gpus() ? gpu_json(scene, row, route) : host_json(row, scene.one_clock));
}

}  // namespace pc::bench
