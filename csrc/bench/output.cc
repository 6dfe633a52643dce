#include "bench/output.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <set>

#include "bench/format.h"

namespace pc::bench {

std::string op_of(const Case& what) {
  return what.operation->reduces ? std::string(name_of(what.op)) : "none";
}

// As in nccl-tests, -1 for an operation without a root.
std::string root_of(const Case& what) {
  if (!what.operation->rooted) return "-1";
  return what.root ? std::to_string(*what.root) : "rotate";
}

namespace {

std::string sizes_of(const std::vector<uint64_t>& sizes) {
  const std::string first = std::to_string(sizes.front()), last = std::to_string(sizes.back());
  return sizes.size() == 1 ? first + " bytes" : first + " to " + last + " bytes";
}

std::string or_by_size(const std::optional<uint64_t>& value) {
  return value ? std::to_string(*value) : "by size";
}

std::string places_of(const std::vector<Case>& cases) {
  const auto in_place = [](const Case& what) { return what.in_place; };
  if (std::all_of(cases.begin(), cases.end(), in_place)) return "in place only";
  return std::any_of(cases.begin(), cases.end(), in_place) ? "in place and out of place" : "out of place";
}

std::string names_of(std::span<const Rank> ranks) {
  std::string names;
  for (const Rank rank : ranks) names += " " + std::to_string(rank);
  return names;
}

std::string hosts_of(const HostMap& hosts) {
  std::set<std::string> keys;
  for (const HostMap::Entry& entry : hosts.ranks) keys.insert(entry.host_key);
  const std::string& first = hosts.ranks.front().host_name;
  return keys.size() == 1 ? "on " + first
                          : "on " + std::to_string(keys.size()) + " hosts, rank 0 on " + first;
}

}  // namespace

std::string table_line(const Row& row) {
  const std::string type = row.what.operation->moves_data ? std::string(name_of(row.what.dtype)) : "none";
  const std::string wrong = row.wrong ? std::to_string(*row.wrong) : "N/A";
  return format("%14" PRIu64 "%14" PRIu64 "%12s%8s%8s%11.2f%9.3f%9.3f%8s%11.2f%11.2f", row.nbytes, row.count,
                type.c_str(), op_of(row.what).c_str(), root_of(row.what).c_str(), row.time.mean_s * 1e6,
                row.algbw, row.busbw, wrong.c_str(), row.time.p50_s * 1e6, row.time.p99_s * 1e6);
}

std::string json_line(const Row& row, Rank size, bool one_clock) {
  const Case& what = row.what;
  const std::string root = what.operation->rooted && !what.root ? "\"rotate\"" : root_of(what);
  return format("{\"collective\": \"%s\", \"ranks\": %d, \"size\": %" PRIu64 ", \"count\": %" PRIu64
                ", \"type\": \"%s\", \"redop\": \"%s\", \"root\": %s, \"time_us\": %.3f, \"algbw\": %.6f, "
                "\"busbw\": %.6f, "
                "\"wrong\": %s, \"p50_us\": %.3f, \"p99_us\": %.3f, \"iters\": %" PRIu64
                ", \"one_clock\": %s, \"in_place\": %s}",
                std::string(what.operation->name).c_str(), size, row.nbytes, row.count,
                what.operation->moves_data ? std::string(name_of(what.dtype)).c_str() : "none",
                op_of(what).c_str(), root.c_str(), row.time.mean_s * 1e6, row.algbw, row.busbw,
                row.wrong ? std::to_string(*row.wrong).c_str() : "null", row.time.p50_s * 1e6,
                row.time.p99_s * 1e6, row.iterations, one_clock ? "true" : "false",
                what.in_place ? "true" : "false");
}

std::string table_line(const Ceiling& ceiling) {
  if (ceiling.nbytes == 0)
    return format("%10s%14s%11.3f%11.3f%9s", std::string(ceiling.name).c_str(), "-", ceiling.time.p50_s * 1e6,
                  ceiling.time.p99_s * 1e6, "-");
  return format("%10s%14" PRIu64 "%11.3f%11.3f%9.3f", std::string(ceiling.name).c_str(), ceiling.nbytes,
                ceiling.time.p50_s * 1e6, ceiling.time.p99_s * 1e6, ceiling.gbps());
}

std::string json_line(const Ceiling& ceiling) {
  return format("{\"ceiling\": \"%s\", \"size\": %" PRIu64
                ", \"p50_us\": %.4f, \"p99_us\": %.4f, "
                "\"iters\": %" PRIu64 "}",
                std::string(ceiling.name).c_str(), ceiling.nbytes, ceiling.time.p50_s * 1e6,
                ceiling.time.p99_s * 1e6, ceiling.iterations);
}

Status print_ceilings(const Options& options) {
  const auto flushed = [] {
    return std::fflush(stdout) == 0 ? Status::ok() : system_error("writing the table", errno);
  };
  if (!options.json) {
    std::printf(
        "# what this machine can do at best: memcpy and add (a += b, float32) on one core, tcp one way\n"
        "# through the loopback, futex until a thread on another core is awake; GB/s by the median\n"
        "#%9s%14s%11s%11s%9s\n#%9s%14s%11s%11s%9s\n",
        "ceiling", "size", "p50", "p99", "rate", "", "(B)", "(us)", "(us)", "(GB/s)");
  }
  return measure_ceilings(options, [&](const Ceiling& ceiling) {
    std::printf("%s\n", (options.json ? json_line(ceiling) : table_line(ceiling)).c_str());
    return flushed();
  });
}

void Output::line(const std::string& text) const {
  if (prints_ && !options_.json) std::printf("%s\n", text.c_str());
}

Status Output::flush() const {
  if (!prints_ || std::fflush(stdout) == 0) return Status::ok();
  return system_error("writing the table", errno);
}

void Output::open(const HostMap& hosts, const World& world) {
  size_ = world.group.size();
  one_clock_ = world.one_clock;
  line(format("# pycollective-bench: %d %s %s", size_, size_ == 1 ? "rank" : "ranks",
              hosts_of(hosts).c_str()));
  line("# " + sizes_of(options_.sizes) + ", warmup_iters " + or_by_size(options_.warm_up) + ", iters " +
       or_by_size(options_.iterations) + ", check " + (options_.checks ? "1" : "0") + ", " +
       places_of(options_.cases));
  if (!options_.group.empty()) {
    line("# these are ranks" + names_of(world.group.world_ranks()) + " of the world" +
         (options_.group == "even-odd" ? "; the odd ones measure at the same time" : "; the others wait"));
  }
  line(one_clock_
           ? "# time: average over the iterations, each from the slowest rank's completion to its next, on "
             "one clock"
           : "# time: average over the iterations on the slowest rank; the ranks have no common clock");
  line("# p50, p99: of single iterations, each " +
       std::string(one_clock_ ? "measured likewise" : "as long as on the rank where it took longest"));
}

Status Output::begin(const Case& what) {
  if (what.operation == operation_ && what.in_place == in_place_) return Status::ok();
  operation_ = what.operation;
  in_place_ = what.in_place;
  line("#\n# " + std::string(what.operation->name) + (what.in_place ? "" : ", out of place"));
  if (!what.operation->note.empty()) line("# " + std::string(what.operation->note));
  if (what.operation->rooted && what.root && size_ > 1) {
    line(
        "# One root in all calls: it may run ahead of the others, so times are the pace of calls in a row. "
        "With");
    line("# -r rotate each call waits for the one before, and times are those of single calls.");
  }
  if (options_.explain)
    line("# algbw = bytes / time, busbw = " + std::string(what.operation->formula) +
         format(", n = %d", size_));
  line(format("#%13s%14s%12s%8s%8s%11s%9s%9s%8s%11s%11s", "size", "count", "type", "redop", "root", "time",
              "algbw", "busbw", "#wrong", "p50", "p99"));
  line(format("#%13s%14s%12s%8s%8s%11s%9s%9s%8s%11s%11s", "(B)", "(elements)", "", "", "", "(us)", "(GB/s)",
              "(GB/s)", "", "(us)", "(us)"));
  return flush();
}

Status Output::add(const Row& row) {
  wrong_ += row.wrong.value_or(0);
  rows_ += row.what.operation->moves_data ? 1 : 0;
  busbw_ += row.busbw;
  line(table_line(row));
  if (prints_ && options_.json) std::printf("%s\n", json_line(row, size_, one_clock_).c_str());
  return flush();
}

Status Output::close() {
  line(format("# Out of bounds values : %" PRIu64 " %s", wrong_, wrong_ == 0 ? "OK" : "FAILED"));
  line(format("# Avg bus bandwidth    : %g", rows_ == 0 ? 0.0 : busbw_ / static_cast<double>(rows_)));
  return flush();
}

}  // namespace pc::bench
