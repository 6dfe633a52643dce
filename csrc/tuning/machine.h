// The machine properties on which measurements depend. Measurements are worthless on a machine with
// other properties.
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

// Always returns the same names in the same order. The value is "unknown" if the system does not
// provide it. `root` is the directory that contains proc and sys.
std::vector<MachineFact> machine_facts(const std::string& root = "/");

}  // namespace pc
