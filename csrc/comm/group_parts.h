// What a runtime passes to each of its groups.
#pragma once

#include <functional>

#include "bootstrap/world.h"
#include "engine/hierarchical/group_table.h"
#include "failure/group_calls.h"
#include "operation/progress.h"
#include "tuning/profile.h"

namespace pc {

class LazyDevices;

struct GroupParts {  // the pointers are not owned; all outlive the group
  GroupCalls::Parts calls;
  Progress* progress = nullptr;
  Transport* transport = nullptr;  // carries messages, also those to this rank itself
  const std::function<bool()>* interrupted = nullptr;
  Check check = Check::kOn;
  Rank hosts = 1;                // number of hosts on which the ranks of the group run
  bool shares_memory = false;    // all ranks share memory: the executor runs collectives without plans
  shm::ShmDomains domains = {};  // if domains.worth_it(), the executor is hierarchical
  const Profile* profile = nullptr;
  Status gpus_may_join = {};
  LazyDevices* devices = nullptr;  // runs calls with arrays on GPUs; null if the runtime has no devices
};

}  // namespace pc
