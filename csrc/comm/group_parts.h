// What a runtime gives to each of its groups.
#pragma once

#include <functional>

#include "bootstrap/world.h"
#include "engine/hierarchical/group_table.h"
#include "failure/group_calls.h"
#include "operation/progress.h"
#include "tuning/profile.h"

namespace pc {

class LazyDevices;

struct GroupParts {  // not owned; all outlive the group
  GroupCalls::Parts calls;
  Progress* progress = nullptr;
  Transport* transport = nullptr;  // of messages, to this rank itself too
  const std::function<bool()>* interrupted = nullptr;
  Check check = Check::kOn;
  Rank hosts = 1;                // on how many the ranks are
  bool shares_memory = false;    // the executor runs collectives without plans
  shm::ShmDomains domains = {};  // worth it: the executor is one that is hierarchical
  const Profile* profile = nullptr;
  Status gpus_may_join = {};
  LazyDevices* devices = nullptr;  // run calls of arrays that do not lie on the host; null: there are none
};

}  // namespace pc
