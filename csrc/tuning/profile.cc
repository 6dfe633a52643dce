#include "tuning/profile.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <utility>

#include "base/byte_units.h"
#include "base/fields.h"

namespace pc {
namespace {

constexpr std::string_view kFormat = "1";
constexpr std::string_view kFirstKey = "pycollective-profile";
constexpr std::size_t kMostNbytes = 64 * kKiB;

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::string in_quotes(std::string_view text) { return "'" + std::string(text) + "'"; }

// Reads line by line; an error describes what is wrong with the line.
class Reader {
 public:
  explicit Reader(const std::vector<MachineFact>& here) : here_(here) {}

  Status take(std::string_view line) {
    if (!std::all_of(line.begin(), line.end(), [](char c) { return c >= ' ' && c <= '~'; }))
      return bad("only printable ASCII is allowed here");
    line = trimmed(line);
    if (line.empty() || line.front() == '#') return Status::ok();
    if (line.front() == '[') return begin_section(line);
    const std::size_t equals = line.find('=');
    const std::string_view key = trimmed(line.substr(0, equals));
    if (equals == std::string_view::npos || key.empty())
      return bad(in_quotes(line) + " is not like key = value");
    return take(key, trimmed(line.substr(equals + 1)));
  }

  // Call after the last line.
  Result<Tuning> end() {
    if (section_ == Section::kFirstLine) return bad("there is no line 'pycollective-profile = 1'");
    PC_TRY(end_of_machine());
    PC_TRY(tuning_.check());
    return std::move(tuning_);
  }

 private:
  enum class Section : uint8_t { kFirstLine, kNothing, kMachine, kGroup };
  static Status bad(const std::string& why) { return Status(Code::kInvalidArgument, why); }

  Status begin_section(std::string_view line) {
    if (section_ == Section::kFirstLine) return bad("the first line is 'pycollective-profile = 1'");
    if (line == "[machine]" && section_ == Section::kNothing) {
      section_ = Section::kMachine;
      return Status::ok();
    }
    constexpr std::string_view kRanks = "[ranks ";
    Rank ranks = 0;
    const bool is_section = line.starts_with(kRanks) && line.ends_with(']');
    if (!is_section || !number_from(line.substr(kRanks.size(), line.size() - 1 - kRanks.size()), ranks))
      return bad(in_quotes(line) + " is no section: there are [machine], once and first, and [ranks 2]");
    if (section_ == Section::kNothing) return bad("[machine] comes first");
    PC_TRY(end_of_machine());
    if (!can_tune(ranks)) return bad("a group of " + std::to_string(ranks) + " ranks is not tuned");
    if (std::find(seen_.begin(), seen_.end(), ranks) != seen_.end())
      return bad(in_quotes(line) + " is there twice");
    seen_.push_back(ranks);
    section_ = Section::kGroup;
    return Status::ok();
  }

  Status end_of_machine() const {
    if (facts_ == here_.size()) return Status::ok();
    return bad("[machine] does not say " + std::string(here_[facts_].name));
  }

  Status take(std::string_view key, std::string_view value) {
    switch (section_) {
      case Section::kFirstLine:
        if (key != kFirstKey) return bad("the first line is 'pycollective-profile = 1'");
        if (value != kFormat) {
          return Status(Code::kUnsupported, "profiles of format " + in_quotes(value) +
                                                " are of another version; this one reads " +
                                                std::string(kFormat));
        }
        section_ = Section::kNothing;
        return Status::ok();
      case Section::kNothing: return bad("[machine] comes first");
      case Section::kMachine: return take_fact(key, value);
      case Section::kGroup: return tuning_.set(seen_.back(), key, value);
    }
    return bad("no section");
  }

  Status take_fact(std::string_view key, std::string_view value) {
    if (facts_ == here_.size() || key != here_[facts_].name) {
      return bad(in_quotes(key) + " is not what comes here: " +
                 (facts_ == here_.size() ? "[machine] is complete" : std::string(here_[facts_].name)));
    }
    const MachineFact& fact = here_[facts_++];
    if (value == fact.value) return Status::ok();
    return Status(Code::kUnsupported, "it was measured on another machine: " + std::string(key) + " is " +
                                          in_quotes(value) + " there and " + in_quotes(fact.value) + " here");
  }

  const std::vector<MachineFact>& here_;
  Section section_ = Section::kFirstLine;
  std::size_t facts_ = 0;  // facts of [machine] read so far
  std::vector<Rank> seen_;
  Tuning tuning_;
};

std::string variable(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): the runtime never writes it
  return value == nullptr ? "" : value;
}

}  // namespace

Result<Tuning> parse_profile(std::string_view text, std::string_view file,
                             const std::vector<MachineFact>& here) {
  std::size_t number = 0;
  const auto at = [&](const Status& why) {
    return Status(why.code(), std::string(file) + ":" + std::to_string(number) + ": " + why.message());
  };
  Reader reader(here);
  while (!text.empty()) {
    ++number;
    const std::size_t end = std::min(text.find('\n'), text.size());
    const Status taken = reader.take(text.substr(0, end));
    if (!taken.is_ok()) return at(taken);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  Result<Tuning> tuning = reader.end();
  return tuning.is_ok() ? std::move(tuning) : at(tuning.status());
}

std::string profile_text(const Tuning& tuning, const std::vector<MachineFact>& here,
                         std::string_view comment) {
  std::string text;
  while (!comment.empty()) {
    const std::string_view line = comment.substr(0, comment.find('\n'));
    comment.remove_prefix(std::min(line.size() + 1, comment.size()));
    text += line.empty() ? "#" : "# ";
    for (const char c : line) text += c >= ' ' && c <= '~' ? c : '?';
    text += '\n';
  }
  text += std::string(kFirstKey) + " = " + std::string(kFormat) + "\n\n[machine]\n";
  for (const MachineFact& fact : here) text += std::string(fact.name) + " = " + fact.value + "\n";
  std::vector<Tuning::Setting> settings = tuning.settings();
  std::stable_sort(settings.begin(), settings.end(),
                   [](const auto& a, const auto& b) { return a.ranks < b.ranks; });
  Rank ranks = 0;
  for (const Tuning::Setting& each : settings) {
    if (each.ranks != std::exchange(ranks, each.ranks)) text += "\n[ranks " + std::to_string(ranks) + "]\n";
    text += each.name + " = " + each.value + "\n";
  }
  return text;
}

Result<Tuning> read_profile(const std::string& path, const std::vector<MachineFact>& here) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMostNbytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.eof() && file.gcount() == 0) return Status(Code::kInvalidArgument, path + " cannot be read");
  if (file.gcount() > static_cast<std::streamsize>(kMostNbytes))
    return Status(Code::kInvalidArgument, path + " is larger than any profile");
  text.resize(static_cast<std::size_t>(file.gcount()));
  return parse_profile(text, path, here);
}

std::string usual_profile_path() {
  std::string folder = variable("XDG_CONFIG_HOME");
  if (folder.empty() || folder.front() != '/') {  // the XDG standard ignores relative paths
    const std::string home = variable("HOME");
    if (home.empty()) return "";
    folder = home + "/.config";
  }
  return folder + "/pycollective/profile";
}

Result<Profile> load_profile(const std::string& named, const Logger& log) {
  if (named == "off") return Profile{};
  const std::string path = named.empty() ? usual_profile_path() : named;
  if (path.empty() || !std::ifstream(path)) {
    if (named.empty()) return Profile{};
    return Status(Code::kInvalidArgument, "PYCOLLECTIVE_PROFILE names '" + named +
                                              "', which cannot be read: give the path of a profile, or off");
  }
  Result<Tuning> read = read_profile(path, machine_facts());
  if (read.is_ok()) return Profile{std::move(read).value(), path};
  const std::string why = "refused: " + read.status().message();
  log.warning(
      "the profile of this machine is " + why +
      ". The defaults count; `pycollective tune` measures again, PYCOLLECTIVE_PROFILE=off looks for none");
  return Profile{{}, why};
}

}  // namespace pc
