// How ranks write to each other through the store while they meet: lines of fields, under the keys of one job
// and one epoch, or an error instead.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "bootstrap/world.h"
#include "wire/credentials.h"

namespace pc {

inline constexpr char kField = '\t', kLine = '\n';

// What is published instead of what others wait for, so that nobody need wait any longer: the same error for
// all, whoever found it. OK: `text` is no such thing.
std::string publish(const Status& why);
Status published_error(std::string_view text);

// Keys of one job and one epoch, so that a store can serve several. They stand in messages: not the job's id
// itself.
class Keys {
 public:
  explicit Keys(const RuntimeOptions& options)
      : prefix_("pycollective/" + fingerprint(options.credentials.job) + "/" + std::to_string(options.epoch) +
                "/") {}
  std::string member(Rank rank) const { return prefix_ + "rank/" + std::to_string(rank); }
  std::string claim(Rank rank) const { return prefix_ + "claim/" + std::to_string(rank); }
  std::string came(Rank rank) const { return prefix_ + "came/" + std::to_string(rank); }
  std::string list() const { return prefix_ + "members"; }
  // Who shares memory: of one world, since a second try must not find the words of the first.
  std::string memory() const { return prefix_ + "memory/"; }  // begins all of them
  std::string memory_of(const std::string& world, Rank rank) const {
    return memory() + world + "/rank/" + std::to_string(rank);
  }
  std::string domain_of(const std::string& world, Rank leader) const {
    return memory() + world + "/host/" + std::to_string(leader);
  }
  std::string refused(const std::string& world, Rank rank) const {  // it knows that all refuse
    return memory() + world + "/refused/" + std::to_string(rank);
  }
  std::string domains(const std::string& world) const { return memory() + world + "/all"; }

 private:
  std::string prefix_;
};

}  // namespace pc
