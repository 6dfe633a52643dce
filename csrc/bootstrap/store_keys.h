// The keys that the ranks of one job and one epoch use in the store during rendezvous, and the
// encoding of the values: lines of fields, or an error in place of the value.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "bootstrap/world.h"
#include "wire/credentials.h"

namespace pc {

inline constexpr char kField = '\t', kLine = '\n';

// publish() encodes an error to store in place of an expected value. The ranks that wait for the
// value all receive this error, and do not wait until their deadlines. published_error() decodes
// it, and returns OK if `text` is not an error.
std::string publish(const Status& why);
Status published_error(std::string_view text);

// The keys of one job and one epoch, so that a store can serve several jobs. Error messages quote
// keys, so the keys contain a fingerprint of the job's id and not the id itself.
class Keys {
 public:
  explicit Keys(const RuntimeOptions& options)
      : prefix_("pycollective/" + fingerprint(options.credentials.job) + "/" + std::to_string(options.epoch) +
                "/") {}
  std::string member(Rank rank) const { return prefix_ + "rank/" + std::to_string(rank); }
  std::string claim(Rank rank) const { return prefix_ + "claim/" + std::to_string(rank); }
  std::string came(Rank rank) const { return prefix_ + "came/" + std::to_string(rank); }
  std::string list() const { return prefix_ + "members"; }
  // Shared-memory keys contain the world's name, so that a second attempt does not find the entries
  // of the first.
  std::string memory() const { return prefix_ + "memory/"; }  // the prefix of all shared-memory keys
  std::string memory_of(const std::string& world, Rank rank) const {
    return memory() + world + "/rank/" + std::to_string(rank);
  }
  std::string domain_of(const std::string& world, Rank leader) const {
    return memory() + world + "/host/" + std::to_string(leader);
  }
  // set by that rank once it knows that all ranks refuse to start
  std::string refused(const std::string& world, Rank rank) const {
    return memory() + world + "/refused/" + std::to_string(rank);
  }
  std::string domains(const std::string& world) const { return memory() + world + "/all"; }

 private:
  std::string prefix_;
};

}  // namespace pc
