// Describes what a call would run and why: for Group.explain() in a world, and for a hypothetical
// group.
#pragma once

#include <string>
#include <string_view>

#include "engine/hierarchical/group_table.h"
#include "tuning/profile.h"
#include "tuning/selection.h"

namespace pc {

struct ExplainedCall {
  Collective collective = Collective::kBarrier;
  uint64_t nbytes = 0;  // of the whole array
  Rank root = 0;
  GroupShape group = {};
  Rank rank = -1;                   // the rank to show steps of; -1: the caller's, or rank 0
  std::string_view transport = {};  // empty: there is none yet
  std::string_view model = {};  // of plan/cost.h; empty: loopback on one host, ethernet_10g between several
  const Profile* profile = nullptr;  // not owned; null: none
};

// Returns kInvalidArgument if a size, root, rank or model does not exist.
Result<std::string> explain_shared_call(const ExplainedCall& call,
                                        Rank size);  // in a group that shares memory
Result<std::string> explain_divided_call(const ExplainedCall& call, Rank size,
                                         const shm::ShmDomains& domains);  // for a hierarchical executor
Result<std::string> explain_call(const ExplainedCall& call, const SelectionTable& table);

}  // namespace pc
