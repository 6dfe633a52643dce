// One collective of a group whose ranks are on several domains: shared memory inside each, inter-domain
// groups between them. Two domains of two ranks, an allreduce of slices a and b:
//
//   rank 0 (a)  ---.  sum of a here   <== plan, round by round ==>  sum of a there  .---  rank 2 (a)
//                   >- shared memory                              shared memory -<
//   rank 1 (b)  ---'  sum of b here   <== plan, round by round ==>  sum of b there  '---  rank 3 (b)
//
// While a round is between the domains, the next ones are combined, and earlier ones given to those who share
// memory.
#pragma once

#include <vector>

#include "engine/hierarchical/group_table.h"
#include "engine/hierarchical/inter_domain_group.h"
#include "engine/shm/shared_run.h"

namespace pc::shm {

// What the runs of one group have in common: the ranks of this rank's domain.
struct HierMembers {
  GroupTable table;
  ShmDomains shape;
  std::vector<Rank> worlds;  // of the table's members()
  std::vector<std::vector<Rank>>
      inter_groups;  // one rank of each domain, by place: as many as the smallest has ranks
};

class HierRun final : public SharedRun {
 public:
  // None of them is owned.
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
  // A call of the whole group, for which is_hierarchical().
  void prepare_call(const Request& request, const Launch& launch);

 private:
  const HierMembers& members_;
  std::vector<Rank> ranks_;  // of the call's inter-domain group; here so that its memory is used again
  InterGroup inter_group_;
  std::byte nothing_{};  // what is combined where there is nothing to combine
};

}  // namespace pc::shm
