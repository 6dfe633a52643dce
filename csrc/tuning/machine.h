// What makes measurements of one machine worthless on another.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pc {

struct MachineFact {
  std::string_view name;
  std::string value;  // one line
  bool operator==(const MachineFact&) const = default;
};

// Always the same names in the same order. "unknown": the system does not say. `root`: where /proc and /sys are.
std::vector<MachineFact> machine_facts(const std::string& root = "/");

}  // namespace pc
