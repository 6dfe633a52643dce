#include "bench/options.h"

#include <charconv>
#include <optional>
#include <string_view>

namespace pc::bench {
namespace {

Status invalid(const std::string& message) { return Status(Code::kInvalidArgument, message); }

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (c == ',') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

Result<uint64_t> number(const std::string& text, uint64_t least, uint64_t most) {
  uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const std::from_chars_result parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec == std::errc() && parsed.ptr == end && value >= least && value <= most) return value;
  return invalid("'" + text + "' is not a number from " + std::to_string(least) + " to " +
                 std::to_string(most));
}

// "8", "64K", "16M", "1G".
Result<uint64_t> number_of_bytes(const std::string& text) {
  constexpr std::string_view kUnits = "KMG";
  const std::size_t unit = text.empty() ? std::string_view::npos : kUnits.find(text.back());
  if (unit == std::string_view::npos) return number(text, 1, uint64_t{1} << 40);
  PC_ASSIGN_OR_RETURN(const uint64_t value, number(text.substr(0, text.size() - 1), 1, 1024));
  return value << (10 * (unit + 1));
}

Status set_sizes(Options& options, const std::string& value) {
  options.sizes.clear();
  for (const std::string& word : split(value)) {
    PC_ASSIGN_OR_RETURN(const uint64_t nbytes, number_of_bytes(word));
    options.sizes.push_back(nbytes);
  }
  return Status::ok();
}

Status set_operations(Options& options, const std::string& value) {
  options.operations.clear();
  for (const std::string& word : split(value)) {
    options.operations.push_back(find_operation(word));
    if (options.operations.back() == nullptr) return invalid("there is no operation '" + word + "'");
  }
  return Status::ok();
}

Status set_dtype(Options& options, const std::string& value) {
  const std::optional<DType> dtype = dtype_from_name(value);
  if (!dtype || !can_fill(*dtype))
    return invalid("--dtype: float32, float64, int32, int64 or uint8, not '" + value + "'");
  options.dtype = *dtype;
  return Status::ok();
}

Status set(Options& options, const std::string& name, const std::string& value) {
  if (name == "--sizes") return set_sizes(options, value);
  if (name == "--ops") return set_operations(options, value);
  if (name == "--dtype") return set_dtype(options, value);
  if (name == "-n") {
    PC_ASSIGN_OR_RETURN(const uint64_t ranks, number(value, 1, 1024));
    options.ranks = static_cast<Rank>(ranks);
  } else if (name == "--iters") {
    PC_ASSIGN_OR_RETURN(options.iterations, number(value, 1, 100'000'000));
  } else if (name == "--tune") {
    options.tune = value;
  } else {
    return invalid("there is no option " + name);
  }
  return Status::ok();
}

}  // namespace

Result<Options> parse(const std::vector<std::string>& words) {
  Options options;
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string name = words[i];
    if (name == "--explain") {
      options.explain = true;
    } else if (name == "--help" || name == "-h") {
      options.help = true;
    } else {
      const std::size_t equals = name.find('=');
      std::string value;
      if (equals != std::string::npos) {
        value = name.substr(equals + 1);
        name.resize(equals);
      } else if (i + 1 < words.size()) {
        value = words[++i];
      } else {
        return invalid(name + " needs a value");
      }
      PC_TRY(set(options, name, value));
    }
  }
  return options;
}

std::string usage() {
  std::string names;
  for (const Operation& operation : operations())
    names += (names.empty() ? "" : ",") + std::string(operation.name);
  return "usage: pycollective-bench [-n 2] [--sizes 8,64K,1M,16M] [--ops " + names +
         "]\n         [--dtype float32] [--iters N] [--tune RULES] [--explain]\n"
         "Measures collectives between n processes on this host, over TCP; results are verified beside the "
         "timed loop.\n";
}

}  // namespace pc::bench
