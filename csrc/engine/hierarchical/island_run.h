// One collective of a group whose ranks are on several islands: shared memory inside each, columns between them. Two islands
// of two ranks, an allreduce of slices a and b:
//
//   rank 0 (a)  ---.  sum of a here   <== plan, round by round ==>  sum of a there  .---  rank 2 (a)
//                   >- shared memory                              shared memory -<
//   rank 1 (b)  ---'  sum of b here   <== plan, round by round ==>  sum of b there  '---  rank 3 (b)
//
// While a round is between the islands, the next ones are combined, and earlier ones given to those who share memory.
#pragma once

#include <vector>

#include "engine/hierarchical/column.h"
#include "engine/hierarchical/group_table.h"
#include "engine/shm/shared_run.h"

namespace pc::shm {

// What the runs of one group have in common: the ranks of this rank's island.
struct IslandMembers {
  GroupTable table;
  Islands shape;
  std::vector<Rank> worlds;  // of the table's members()
  std::vector<std::vector<Rank>>
      columns;  // one rank of each island, by place: as many as the smallest has ranks
};

class IslandRun final : public SharedRun {
 public:
  // None of them is owned.
  IslandRun(Host& host, Group& group, Waiter& waiter, const IslandMembers& members, Transport& transport,
            PlanCache& plans, const ChoosePlan& choose)
      : SharedRun(host, group, waiter),
        members_(members),
        column_(transport, plans, choose, members.columns, bell(), kWake) {}
  IslandRun(const IslandRun&) = delete;
  IslandRun& operator=(const IslandRun&) = delete;
  ~IslandRun() override {
    if (started_ && !ended()) end(Status(Code::kAborted, "dropped by its owner before it was done"));
  }
  // A call of the whole group, for which goes_by_islands().
  void prepare_call(const Request& request, const Launch& launch);

 private:
  const IslandMembers& members_;
  std::vector<Rank> ranks_;  // of the call's column; here so that its memory is used again
  Column column_;
  std::byte nothing_{};  // what is combined where there is nothing to combine
};

}  // namespace pc::shm
