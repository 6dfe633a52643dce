#include "bench/table.h"

#include <algorithm>
#include <cinttypes>

#include "bench/format.h"

namespace pc::bench {
namespace {

// ---- the host's table

std::string places_of(const std::vector<Case>& cases) {
  const auto in_place = [](const Case& what) { return what.in_place; };
  if (std::all_of(cases.begin(), cases.end(), in_place)) return "in place only";
  return std::any_of(cases.begin(), cases.end(), in_place) ? "in place and out of place" : "out of place";
}

std::string host_head(const Options& options, const RunInfo& run_info) {
  const std::string first = options.sizes.size() == 1 ? "" : std::to_string(options.sizes.front()) + " to ";
  std::string text = format(
      "# pycollective-bench: %d %s %s\n# %s%" PRIu64 " bytes, warmup_iters %s, iters %s, check %d, %s",
      run_info.size(), run_info.size() == 1 ? "rank" : "ranks", run_info.hosts.c_str(), first.c_str(),
      options.sizes.back(), or_else(options.warm_up, "by size").c_str(),
      or_else(options.iterations, "by size").c_str(), options.checks, places_of(options.cases).c_str());
  if (!options.group.empty()) {
    text += "\n# these are ranks";
    for (const Rank rank : run_info.ranks) text += " " + std::to_string(rank);
    text += " of the world";
    text += options.group == "even-odd" ? "; the odd ones measure at the same time" : "; other ranks wait";
  }
  if (run_info.one_clock)
    return text +
           "\n# time: average over the iterations, each from the slowest rank's completion to its next, on "
           "one clock\n# p50, p99: of single iterations, each measured likewise";
  return text +
         "\n# time: average over the iterations on the slowest rank; the ranks have no common clock"
         "\n# p50, p99: of single iterations, each as long as on the rank where it took longest";
}

std::string host_notes(const RunInfo& run_info, const Case& what) {
  std::string text = what.in_place ? "" : ", out of place";
  if (!what.operation->note.empty()) text += "\n# " + std::string(what.operation->note);
  if (what.operation->rooted() && what.root && run_info.size() > 1)
    text +=
        "\n# One root in all calls may run ahead of other ranks, so times are the pace of calls in a row. "
        "With\n# -r rotate each call waits for the one before, and times are those of single calls.";
  return text;
}

std::string host_titles() {
  constexpr const char* kColumns = "\n#%13s%14s%12s%8s%8s%11s%9s%9s%8s%11s%11s";
  return format(kColumns, "size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "p50",
                "p99") +
         format(kColumns, "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(us)");
}

std::string host_line(const Row& row) {
  const Half& half = row.half();
  const Latencies& time = half.time.done;
  return format("%14" PRIu64 "%14" PRIu64 "%12s%8s%8s%11.2f%9.3f%9.3f%8s%11.2f%11.2f", row.nbytes, row.count,
                type_of(row.what).c_str(), op_of(row.what).c_str(), root_of(row.what).c_str(),
                time.mean_s * 1e6, half.algbw, half.busbw, or_else(half.wrong, "N/A").c_str(),
                time.p50_s * 1e6, time.p99_s * 1e6);
}

// ---- the table for GPUs

std::string gpu_head(const Options& options, const RunInfo& run_info) {
  std::string text =
      format("# nThread %" PRIu64 " nGpus 1 minBytes %" PRIu64 " maxBytes %" PRIu64
             " warmup iters: %s iters: %s agg iters: %" PRIu64 " validation: %d graph: %" PRIu64
             "\n#\n# Using devices\n",
             options.threads == 0 ? 1 : options.threads, options.sizes.front(), options.sizes.back(),
             or_else(options.warm_up, "by size").c_str(), or_else(options.iterations, "by size").c_str(),
             options.aggregated, options.checks, options.graph_launches);
  for (const std::string& each : run_info.devices) text += each + "\n";
  if (!run_info.nccl.empty()) text += "# " + run_info.nccl_from + "\n";
  return text + "# time: " +
         (options.host_time ? "until the calls are queued"
                            : "of calls queued one behind the other, until the last has ended") +
         ", by their number";
}

std::string gpu_titles(bool host_time) {
  const char* const time = host_time ? "cputime" : "time";
  return format(
             "\n# %10s  %12s  %8s  %6s  %6s           out-of-place                       in-place          ",
             "", "", "", "", "") +
         format("\n# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s %6s  %7s  %6s  %6s %6s", "size", "count",
                "type", "redop", "root", time, "algbw", "busbw", "#wrong", time, "algbw", "busbw", "#wrong") +
         format("\n# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %5s  %7s  %6s  %6s  %5s", "(B)", "(elements)",
                "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "");
}

// Rounds times as nccl-tests does.
std::string half_text(const std::optional<Half>& half, bool host_time) {
  if (!half) return format("  %7s  %6s  %6s  %6s", "N/A", "N/A", "N/A", "N/A");
  const double us = (host_time ? half->time.queued : half->time.done).mean_s * 1e6;
  return format(us >= 10000 ? "  %7.0f"
                : us >= 100 ? "  %7.1f"
                            : "  %7.2f",
                us) +
         format("  %6.2f  %6.2f  %6s", half->algbw, half->busbw, or_else(half->wrong, "N/A").c_str());
}

// NCCL's times, and the differences to pycollective's times.
std::string compared(const Latencies& raw, const Latencies& ours) {
  const auto pair = [](double raw_s, double ours_s) {
    return format("%.2f us, ours %+.2f", raw_s * 1e6, (ours_s - raw_s) * 1e6);
  };
  return pair(raw.mean_s, ours.mean_s) + ", median " + pair(raw.p50_s, ours.p50_s) + ", p99 " +
         pair(raw.p99_s, ours.p99_s);
}

std::string raw_text(const char* place, const Half& half) {
  return std::string(" ") + place + " " + compared(half.raw->done, half.time.done) + ", until queued " +
         compared(half.raw->queued, half.time.queued) + ", #wrong " + or_else(half.raw_wrong, "N/A");
}

std::string gpu_lines(const Row& row, bool host_time) {
  std::string text = format("%12" PRIu64 "  %12" PRIu64 "  %8s  %6s  %6s", row.nbytes, row.count,
                            type_of(row.what).c_str(), op_of(row.what).c_str(), root_of(row.what).c_str()) +
                     half_text(row.out_of_place, host_time) + half_text(row.in_place, host_time);
  if (row.half().raw) text += "\n# NCCL's own call:";
  if (row.out_of_place && row.out_of_place->raw) text += raw_text("out of place", *row.out_of_place);
  if (row.in_place && row.in_place->raw)
    text += (row.out_of_place ? ";" : "") + raw_text("in place", *row.in_place);
  if (row.copy_s)
    text += format("\n# the driver's copy: %.2f us, %.2f GB/s", *row.copy_s * 1e6,
                   static_cast<double>(row.nbytes) / *row.copy_s / 1e9);
  return text;
}

}  // namespace

std::string table_head(const Options& options, const RunInfo& run_info) {
  return options.on_gpus() ? gpu_head(options, run_info) : host_head(options, run_info);
}

std::string heading(const Options& options, const RunInfo& run_info, const Case& what, const Route& route) {
  std::string text = "#\n# " + std::string(what.operation->name);
  if (options.on_gpus()) {
    text += "\n# way: " + std::string(route.backend);
    if (!route.by_nccl.is_ok()) text += ": " + route.by_nccl.message();
  } else {
    text += host_notes(run_info, what);
  }
  if (options.explain)
    text += "\n# algbw = bytes / time, busbw = " + std::string(what.operation->bus.formula) +
            format(", n = %d", run_info.size());
  return text + (options.on_gpus() ? gpu_titles(options.host_time) : host_titles());
}

std::string table_lines(const Options& options, const Row& row) {
  return options.on_gpus() ? gpu_lines(row, options.host_time) : host_line(row);
}

std::string type_of(const Case& what) {
  return what.operation->moves_data() ? std::string(name_of(what.dtype)) : "none";
}

std::string op_of(const Case& what) {
  return what.operation->reduces() ? std::string(name_of(what.op)) : "none";
}

// As in nccl-tests, the root of an operation without a root is -1.
std::string root_of(const Case& what) {
  if (!what.operation->rooted()) return "-1";
  return what.root ? std::to_string(*what.root) : "rotate";
}

}  // namespace pc::bench
