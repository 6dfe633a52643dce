// The encoding of what ranks publish in the store during rendezvous: lines of fields, under the
// keys of one job and one epoch, or an error instead.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "bootstrap/world.h"
#include "wire/credentials.h"

namespace pc {

inline constexpr char kField = '\t', kLine = '\n';

// publish() encodes an error that replaces an expected value, so that no rank waits any longer: all
// ranks get the same error, whichever rank found it. published_error() returns OK if `text` is not
// such an error.
std::string publish(const Status& why);
Status published_error(std::string_view text);

// Keys of one job and one epoch, so that a store can serve several. The keys appear in messages, so
// they do not contain the job's id itself.
class Keys {
 public:
  explicit Keys(const RuntimeOptions& options)
      : prefix_("pycollective/" + fingerprint(options.credentials.job) + "/" + std::to_string(options.epoch) +
                "/") {}
  std::string member(Rank rank) const { return prefix_ + "rank/" + std::to_string(rank); }
  std::string claim(Rank rank) const { return prefix_ + "claim/" + std::to_string(rank); }
  std::string came(Rank rank) const { return prefix_ + "came/" + std::to_string(rank); }
  std::string list() const { return prefix_ + "members"; }
  // Shared-memory keys belong to one world, because a second attempt must not find the entries of
  // the first.
  std::string memory() const { return prefix_ + "memory/"; }  // the prefix of all of them
  std::string memory_of(const std::string& world, Rank rank) const {
    return memory() + world + "/rank/" + std::to_string(rank);
  }
  std::string domain_of(const std::string& world, Rank leader) const {
    return memory() + world + "/host/" + std::to_string(leader);
  }
  std::string refused(const std::string& world, Rank rank) const {  // that rank knows that all refuse
    return memory() + world + "/refused/" + std::to_string(rank);
  }
  std::string domains(const std::string& world) const { return memory() + world + "/all"; }

 private:
  std::string prefix_;
};

}  // namespace pc
