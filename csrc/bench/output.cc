#include "bench/output.h"

#include <cerrno>
#include <cinttypes>
#include <cstdio>

#include "bench/format.h"
#include "bench/json.h"

namespace pc::bench {

void Output::line(const std::string& text) const {
  if (prints_ && !options_.json) std::printf("%s\n", text.c_str());
}

Status Output::flush() const {
  if (!prints_ || std::fflush(stdout) == 0) return Status::ok();
  return system_error("writing the table", errno);
}

Status Output::open() {
  line(table_head(options_, scene_));
  return flush();
}

Status Output::begin(const Case& what, const Route& route) {
  const std::string text = heading(options_, scene_, what, route);
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
  if (prints_ && options_.json) std::printf("%s\n", json_line(options_, scene_, row, route).c_str());
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

Status Output::verdict() const {
  std::string text;
  if (wrong_ != 0) text = std::to_string(wrong_) + " elements of the results are wrong";
  if (raw_wrong_ != 0)
    text += (text.empty() ? "" : ", ") + std::to_string(raw_wrong_) +
            " elements of the results of NCCL's own calls are wrong";
  return text.empty() ? Status::ok() : Status(Code::kInternal, text);
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

}  // namespace pc::bench
