#include "bench/gpu_output.h"

#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <utility>

#include "bench/format.h"
#include "bench/output.h"

namespace pc::bench {
namespace {

// As nccl-tests shortens them.
std::string time_text(double seconds) {
  const double us = seconds * 1e6;
  return format(us >= 10000 ? "%7.0f" : us >= 100 ? "%7.1f" : "%7.2f", us);
}

double reported(const PerIteration& time, bool host_time) {
  return host_time ? time.until_queued_s : time.until_done_s;
}

std::string or_else(const std::optional<uint64_t>& number, const char* none) {
  return number ? std::to_string(*number) : none;
}

std::string half_text(const std::optional<GpuHalf>& half, bool host_time) {
  if (!half) return format("  %7s  %6s  %6s  %6s", "N/A", "N/A", "N/A", "N/A");
  return format("  %7s  %6.2f  %6.2f  %6s", time_text(reported(half->time, host_time)).c_str(), half->algbw,
                half->busbw, or_else(half->wrong, "N/A").c_str());
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (static_cast<unsigned char>(c) >= ' ') result += c;
  }
  return result + '"';
}

std::string us_json(double seconds) { return format("%.17g", seconds * 1e6); }

std::string turns_json(const PerIteration& time) {
  std::string text;
  for (const double each : time.turns_s) text += (text.empty() ? "" : ", ") + us_json(each);
  return "[" + text + "]";
}

std::string host_percentiles_json(const std::string& whose, const PerIteration& time) {
  return ", \"" + whose + "host_p50\": " + us_json(time.host_p50_s) + ", \"" + whose +
         "host_p99\": " + us_json(time.host_p99_s);
}
std::string percentiles_json(const std::string& whose, const PerIteration& time) {
  return ", \"" + whose + "p50\": " + us_json(percentile_s(time, 0.50)) + ", \"" + whose +
         "p99\": " + us_json(percentile_s(time, 0.99)) + ", \"" + whose + "turns\": " + turns_json(time);
}

std::string json_half(const std::optional<GpuHalf>& half) {
  if (!half) return "null";
  std::string text = "{\"time\": " + us_json(half->time.until_done_s) +
                     format(", \"alg_bw\": %.17g, \"bus_bw\": %.17g", half->algbw, half->busbw) +
                     ", \"nwrong\": " + or_else(half->wrong, "null") +
                     ", \"host_time\": " + us_json(half->time.until_queued_s) +
                     host_percentiles_json("", half->time);
  if (half->raw)
    text += percentiles_json("", half->time) + ", \"raw_time\": " + us_json(half->raw->until_done_s) +
            ", \"raw_host_time\": " + us_json(half->raw->until_queued_s) +
            host_percentiles_json("raw_", *half->raw) + percentiles_json("raw_", *half->raw) +
            ", \"raw_nwrong\": " + or_else(half->raw_wrong, "null");
  return text + "}";
}

// NCCL's time, and how much longer ours takes.
std::string beside(double raw_s, double ours_s) {
  return format("%.2f us, ours %+.2f", raw_s * 1e6, (ours_s - raw_s) * 1e6);
}

std::string raw_text(const char* place, const GpuHalf& half) {
  const PerIteration &raw = *half.raw, &ours = half.time;
  return std::string(" ") + place + " " + beside(raw.until_done_s, ours.until_done_s) + ", median " +
         beside(percentile_s(raw, 0.50), percentile_s(ours, 0.50)) + ", p99 " +
         beside(percentile_s(raw, 0.99), percentile_s(ours, 0.99)) + ", until queued " +
         beside(raw.until_queued_s, ours.until_queued_s) + ", median " +
         beside(raw.host_p50_s, ours.host_p50_s) + ", p99 " + beside(raw.host_p99_s, ours.host_p99_s) +
         ", #wrong " + or_else(half.raw_wrong, "N/A");
}

std::string way_text(const Route& route) {
  return std::string(route.way) + (route.by_nccl.is_ok() ? "" : ": " + route.by_nccl.message());
}

struct DeviceLine {
  char text[192] = {};
};

}  // namespace

Result<std::vector<std::string>> device_lines(Communicator& group, const Gpu& gpu, const std::string& host) {
  const cuda::DeviceInfo& info = gpu.info();
  DeviceLine mine;
  format("#  Rank %2d Group %2d Pid %6d on %10s device %2d [%s] %s", group.rank(), 0,
         static_cast<int>(::getpid()), host.c_str(), info.ordinal, info.pci_bus_id.c_str(), info.name.c_str())
      .copy(mine.text, sizeof mine.text - 1);
  std::vector<DeviceLine> all(static_cast<std::size_t>(group.size()));
  Request exchange;
  exchange.collective = Collective::kAllgather;
  exchange.in = {reinterpret_cast<const std::byte*>(&mine), sizeof mine, DType::kU8};
  exchange.out = {reinterpret_cast<std::byte*>(all.data()), sizeof mine * all.size(), DType::kU8};
  PC_TRY(group.run(exchange));
  std::vector<std::string> lines;
  for (DeviceLine& each : all) {
    each.text[sizeof each.text - 1] = '\0';
    lines.emplace_back(each.text);
  }
  return lines;
}

std::string gpu_table_line(const GpuRow& row, bool host_time) {
  return format("%12" PRIu64 "  %12" PRIu64 "  %8s  %6s  %6s", row.nbytes, row.count,
                std::string(name_of(row.what.dtype)).c_str(), op_of(row.what).c_str(),
                root_of(row.what).c_str()) +
         half_text(row.out_of_place, host_time) + half_text(row.in_place, host_time);
}

std::string raw_line(const GpuRow& row) {
  std::string text = "# NCCL's own call:";
  if (row.out_of_place) text += raw_text("out of place", *row.out_of_place);
  if (row.out_of_place && row.in_place) text += ";";
  if (row.in_place) text += raw_text("in place", *row.in_place);
  return text;
}

std::string copy_line(const GpuRow& row) {
  return format("# the driver's copy: %.2f us, %.2f GB/s", *row.copy_s * 1e6,
                static_cast<double>(row.nbytes) / *row.copy_s / 1e9);
}

std::string gpu_json_line(const GpuRow& row, const GpuScene& scene, const Route& route) {
  const Case& what = row.what;
  const std::string root = what.operation->rooted && !what.root ? "\"rotate\"" : root_of(what);
  return format("{\"collective\": \"%s\", \"ranks\": %d, \"size\": %" PRIu64 ", \"count\": %" PRIu64
                ", \"type\": \"%s\", \"redop\": \"%s\", \"root\": %s",
                std::string(what.operation->name).c_str(), scene.size, row.nbytes, row.count,
                std::string(name_of(what.dtype)).c_str(), op_of(what).c_str(), root.c_str()) +
         ", \"out_of_place\": " + json_half(row.out_of_place) + ", \"in_place\": " + json_half(row.in_place) +
         ", \"copy_time\": " + (row.copy_s ? us_json(*row.copy_s) : "null") +
         ", \"actual_iterations\": " + std::to_string(row.iterations) +
         ", \"device\": \"cuda\", \"gpu\": " + quoted(scene.gpu) +
         ", \"nccl_version\": " + (scene.nccl.empty() ? "null" : quoted(scene.nccl)) +
         ", \"way\": " + quoted(std::string(route.way)) +
         ", \"why_not_nccl\": " + (route.by_nccl.is_ok() ? "null" : quoted(route.by_nccl.message())) + "}";
}

void GpuOutput::line(const std::string& text) const {
  if (prints_ && !options_.json) std::printf("%s\n", text.c_str());
}

Status GpuOutput::flush() const {
  if (!prints_ || std::fflush(stdout) == 0) return Status::ok();
  return system_error("writing the table", errno);
}

void GpuOutput::open(const std::vector<std::string>& devices) {
  const GpuOptions& gpu = options_.gpu;
  const auto or_by_size = [](const std::optional<uint64_t>& value) {
    return value ? std::to_string(*value) : std::string("by size");
  };
  line("# nThread " + std::to_string(gpu.threads == 0 ? 1 : gpu.threads) + " nGpus 1 minBytes " +
       std::to_string(options_.sizes.front()) + " maxBytes " + std::to_string(options_.sizes.back()) +
       " warmup iters: " + or_by_size(options_.warm_up) + " iters: " + or_by_size(options_.iterations) +
       " agg iters: " + std::to_string(gpu.aggregated) + " validation: " + (options_.checks ? "1" : "0") +
       " graph: " + std::to_string(gpu.graph_launches));
  line("#\n# Using devices");
  for (const std::string& each : devices) line(each);
  if (!scene_.nccl.empty()) line("# " + scene_.nccl_from);
  line(std::string("# time: ") +
       (gpu.host_time ? "until the calls are queued"
                      : "of calls queued one behind the other, until the last has ended") +
       ", by their number");
}

Status GpuOutput::begin(const Case& what, const Route& route) {
  const std::string way = way_text(route);
  if (what.operation == operation_ && way == way_) return Status::ok();
  operation_ = what.operation;
  way_ = way;
  line("#\n# " + std::string(what.operation->name) + "\n# way: " + way);
  if (options_.explain)
    line("# algbw = bytes / time, busbw = " + std::string(what.operation->formula) +
         format(", n = %d", scene_.size));
  const char* const time = options_.gpu.host_time ? "cputime" : "time";
  line(format("# %10s  %12s  %8s  %6s  %6s           out-of-place                       in-place          ",
              "", "", "", "", ""));
  line(format("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s %6s  %7s  %6s  %6s %6s", "size", "count", "type",
              "redop", "root", time, "algbw", "busbw", "#wrong", time, "algbw", "busbw", "#wrong"));
  line(format("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %5s  %7s  %6s  %6s  %5s", "(B)", "(elements)", "",
              "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", ""));
  return flush();
}

Status GpuOutput::add(const GpuRow& row, const Route& route) {
  for (const std::optional<GpuHalf>& half : {row.out_of_place, row.in_place}) {
    if (!half) continue;
    wrong_ += half->wrong.value_or(0);
    raw_wrong_ += half->raw_wrong.value_or(0);
    busbw_ += half->busbw;
    ++halves_;
  }
  line(gpu_table_line(row, options_.gpu.host_time));
  if (options_.gpu.raw) line(raw_line(row));
  if (row.copy_s) line(copy_line(row));
  if (prints_ && options_.json) std::printf("%s\n", gpu_json_line(row, scene_, route).c_str());
  return flush();
}

Status GpuOutput::close() {
  const auto count = [this](const char* of, uint64_t wrong) {
    line(format("# %-20s : %" PRIu64 " %s", of, wrong, wrong == 0 ? "OK" : "FAILED"));
  };
  count("Out of bounds values", wrong_);
  if (options_.gpu.raw) count("of NCCL's own calls", raw_wrong_);
  line(format("# Avg bus bandwidth    : %g", halves_ == 0 ? 0.0 : busbw_ / static_cast<double>(halves_)));
  return flush();
}

Status GpuOutput::verdict() const {
  if (wrong_ == 0 && raw_wrong_ == 0) return Status::ok();
  std::string text;
  if (wrong_ != 0) text = std::to_string(wrong_) + " elements of the results are wrong";
  if (raw_wrong_ != 0)
    text += (text.empty() ? "" : ", ") + std::to_string(raw_wrong_) +
            " elements of the results of NCCL's own calls are wrong";
  return Status(Code::kInternal, text);
}

}  // namespace pc::bench
