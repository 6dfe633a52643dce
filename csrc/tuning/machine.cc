#include "tuning/machine.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <map>
#include <optional>

namespace pc {
namespace {

constexpr int kMostCaches = 16;

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Returns the text with only printable characters and single blanks, as a line of a profile
// requires.
std::string tidy(std::string_view text) {
  std::string clean;
  for (const char c : text) {
    const bool blank = c <= ' ' || c > '~';
    if (!blank) clean += c;
    if (blank && !clean.empty() && clean.back() != ' ') clean += ' ';
  }
  if (!clean.empty() && clean.back() == ' ') clean.pop_back();
  return clean.empty() ? "unknown" : clean;
}

// Returns the lines of /proc/cpuinfo about the first processor, by name.
std::map<std::string, std::string> first_processor(const std::string& root) {
  std::ifstream file(root + "proc/cpuinfo");
  std::map<std::string, std::string> lines;
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const std::size_t colon = line.find(':');
    if (colon != std::string::npos) lines.emplace(tidy(line.substr(0, colon)), tidy(line.substr(colon + 1)));
  }
  return lines;
}

// Returns the processor's model name, or its identification numbers if there is no model name.
std::string cpu_name(const std::map<std::string, std::string>& processor) {
  if (const auto name = processor.find("model name"); name != processor.end()) return name->second;
  std::string numbers;
  for (const char* each : {"CPU implementer", "CPU part", "CPU variant", "CPU revision"}) {
    const auto number = processor.find(each);
    if (number != processor.end()) numbers += (numbers.empty() ? "" : " ") + number->second;
  }
  return tidy(numbers);
}

// Returns 5 for "0-3,8", and nullopt if the text is no such list.
std::optional<int> count_of(std::string_view list) {
  int count = 0;
  while (!list.empty()) {
    const std::string_view part = list.substr(0, list.find(','));
    list.remove_prefix(std::min(part.size() + 1, list.size()));
    int from = 0, to = 0;
    const char* const end = part.data() + part.size();
    std::from_chars_result read = std::from_chars(part.data(), end, from);
    if (read.ec != std::errc()) return std::nullopt;
    to = from;
    if (read.ptr != end && *read.ptr == '-') read = std::from_chars(read.ptr + 1, end, to);
    if (read.ec != std::errc() || read.ptr != end || to < from) return std::nullopt;
    count += to - from + 1;
  }
  return count == 0 ? std::nullopt : std::optional<int>(count);
}

// Counts the cores of the host or the container, not of this process, so that a launcher that pins
// each rank to a core does not change the result.
std::string cores(const std::string& root) {
  std::optional<int> count = count_of(first_line(root + "sys/devices/system/cpu/online"));
  const std::optional<int> set = count_of(first_line(root + "sys/fs/cgroup/cpuset.cpus.effective"));
  if (set && (!count || *set < *count)) count = set;
  double quota = 0, period = 0;
  if (std::ifstream(root + "sys/fs/cgroup/cpu.max") >> quota >> period && period > 0) {
    const int allowed = std::max(1, static_cast<int>(std::floor(quota / period)));
    if (!count || allowed < *count) count = allowed;
  }
  return count ? std::to_string(*count) : "unknown";
}

// Returns the size of the first core's first data cache of that level.
std::string cache(const std::string& root, std::string_view level) {
  for (int i = 0; i < kMostCaches; ++i) {
    const std::string here = root + "sys/devices/system/cpu/cpu0/cache/index" + std::to_string(i) + "/";
    if (first_line(here + "level") == level && first_line(here + "type") != "Instruction")
      return tidy(first_line(here + "size"));
  }
  return "unknown";
}

// Returns 6.18 for "6.18.44-generic". The rest changes with every update and does not indicate
// speed.
std::string kernel(const std::string& root) {
  const std::string release = first_line(root + "proc/sys/kernel/osrelease");
  const std::size_t second = std::min(release.find('.', release.find('.') + 1), release.size());
  return tidy(release.substr(0, std::min(second, release.find('-'))));
}

}  // namespace

std::vector<MachineFact> machine_facts(const std::string& root) {
  const std::map<std::string, std::string> processor = first_processor(root);
  const auto flags = processor.find("flags");
  const bool says_virtual =
      flags != processor.end() && (" " + flags->second + " ").find(" hypervisor ") != std::string::npos;
  const bool is_virtual = says_virtual || !first_line(root + "sys/hypervisor/type").empty();
  return {{"cpu", cpu_name(processor)},
          {"cores", cores(root)},
          {"l1d", cache(root, "1")},
          {"l2", cache(root, "2")},
          {"l3", cache(root, "3")},
          {"kernel", kernel(root)},
          {"virtual", is_virtual ? "yes" : "no"}};
}

}  // namespace pc
