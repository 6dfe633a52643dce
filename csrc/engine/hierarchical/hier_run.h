// One collective of a group that spans several domains. It uses shared memory inside each domain,
// and inter-domain groups between them. Example: an allreduce of slices a and b by two domains of
// two ranks.
//
//   rank 0 (a) ---.  sum of a here   <== plan, round by round ==>  sum of a there  .--- rank 2 (a)
//                  >- shared memory                              shared memory -<
//   rank 1 (b) ---'  sum of b here   <== plan, round by round ==>  sum of b there  '--- rank 3 (b)
//
// While a round is exchanged between the domains, the next rounds are combined, and the results of
// earlier rounds are passed to the ranks of the domain.
#pragma once

#include <vector>

#include "engine/hierarchical/group_table.h"
#include "engine/hierarchical/inter_domain_group.h"
#include "engine/shm/shared_run.h"

namespace pc::shm {

// The ranks of one group, by domain. All runs of the group share this.
struct HierMembers {
  GroupTable table;
  ShmDomains shape;
  std::vector<Rank> worlds;  // world ranks of table.members()
  // inter_groups[p]: the rank with index p of each domain; there are as many groups as the smallest
  // domain has ranks
  std::vector<std::vector<Rank>> inter_groups;
};

class HierRun final : public SharedRun {
 public:
  // None of the arguments is owned.
  HierRun(Host& host, Group& group, Waiter& waiter, const HierMembers& members, Transport& transport,
          PlanCache& plans, const ChoosePlan& choose)
      : SharedRun(host, group, waiter),
        members_(members),
        inter_group_(transport, plans, choose, members.inter_groups, notifier(), kWake) {}
  HierRun(const HierRun&) = delete;
  HierRun& operator=(const HierRun&) = delete;
  ~HierRun() override {
    if (started_ && !ended()) end(Status(Code::kAborted, "dropped by its owner before it was done"));
  }
  // Prepares a call of the whole group, for which is_hierarchical() is true.
  void prepare_call(const Request& request, const Launch& launch);

 private:
  const HierMembers& members_;
  std::vector<Rank> ranks_;  // of the call's inter-domain group; a member, so that its memory is reused
  InterGroup inter_group_;
  std::byte nothing_{};  // one byte to combine if a call has no data
};

}  // namespace pc::shm
