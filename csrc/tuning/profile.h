// The file that `pycollective tune` writes: the machine that was measured, and the results.
// docs/tune.md has an example. A file that deviates from the format is refused as a whole, because
// half a profile is worse than none.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "tuning/machine.h"
#include "tuning/tuning.h"

namespace pc {

// The tuning that a world uses. `origin` is the path of the profile, or the reason why the profile
// was refused. It is empty if no profile was read.
struct Profile {
  Tuning tuning;
  std::string origin;
};

// Fails with kInvalidArgument for a malformed line, and with kUnsupported for a profile of another
// machine or format. Both errors name `file` and the line.
Result<Tuning> parse_profile(std::string_view text, std::string_view file,
                             const std::vector<MachineFact>& here);
// Returns the text of the file. `comment`, which may have several lines, is placed first.
std::string profile_text(const Tuning& tuning, const std::vector<MachineFact>& here,
                         std::string_view comment);
Result<Tuning> read_profile(const std::string& path, const std::vector<MachineFact>& here);

std::string usual_profile_path();  // path of this user's profile; empty if there is no home directory
// `named` is the value of PYCOLLECTIVE_PROFILE: "off", a path, or empty for the user's own profile,
// if there is one. If the profile is refused, logs a warning, and the defaults apply. Fails if a
// named file cannot be read.
Result<Profile> load_profile(const std::string& named, const Logger& log);

}  // namespace pc
