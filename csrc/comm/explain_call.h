// Describes which algorithm a call would run and why: for Group.explain(), and for a hypothetical
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
  Rank rank = -1;                   // the rank for which steps are shown; -1: the calling rank, or rank 0
  std::string_view transport = {};  // empty: not shown
  // name of a model in plan/cost.h; empty: loopback on one host, ethernet_10g between hosts
  std::string_view model = {};
  const Profile* profile = nullptr;  // not owned; null if there is no profile
};

// explain_shared_call() is for a group in which all ranks share memory, explain_divided_call() for
// a group with a hierarchical executor. All three return kInvalidArgument if a size, root, rank or
// model in `call` does not exist.
Result<std::string> explain_shared_call(const ExplainedCall& call, Rank size);
Result<std::string> explain_divided_call(const ExplainedCall& call, Rank size,
                                         const shm::ShmDomains& domains);
Result<std::string> explain_call(const ExplainedCall& call, const SelectionTable& table);

}  // namespace pc
