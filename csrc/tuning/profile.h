// The file that `pycollective tune` writes: what machine was measured, and what was found there. docs/tune.md shows one. Whatever
// is not exactly so is refused as a whole, by file and line: half a profile is worse than none.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "tuning/machine.h"
#include "tuning/tuning.h"

namespace pc {

// What a world goes by, and where it comes from: "/home/me/.config/pycollective/profile", or why there is none in that
// place; empty: nobody has measured.
struct Profile {
  Tuning tuning;
  std::string origin;
};

// kInvalidArgument: a line that means nothing; kUnsupported: another machine. Both name `file` and the line.
Result<Tuning> parse_profile(std::string_view text, std::string_view file,
                             const std::vector<MachineFact>& here);
// That file; `comment` of several lines goes before everything.
std::string profile_text(const Tuning& tuning, const std::vector<MachineFact>& here,
                         std::string_view comment);
Result<Tuning> read_profile(const std::string& path, const std::vector<MachineFact>& here);

std::string usual_profile_path();  // of this user; empty: there is no home
// `named` is the word of PYCOLLECTIVE_PROFILE: "off", a path, or empty: the user's own, where there is one. A profile that is
// refused is logged, and the defaults count. An error: a file was named, and there is none.
Result<Profile> load_profile(const std::string& named, const Logger& log);

}  // namespace pc
