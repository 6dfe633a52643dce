// An allgather of plain data, used before a decision that all ranks of a group must make alike.
#pragma once

#include <vector>

#include "comm/communicator.h"
#include "operation/plain_bytes.h"

namespace pc {

// Returns the value of every rank, indexed by group rank. All members must call it. `label` appears
// in errors.
template <class T>
Result<std::vector<T>> gather_plain(Communicator& group, const T& mine, const char* label, double timeout_s) {
  std::vector<T> all(static_cast<std::size_t>(group.size()));
  Request request;
  request.collective = Collective::kAllgather;
  request.in = bytes_of(mine);
  request.out = buffer_of(all[0], all.size());
  request.label = label;
  PC_TRY(group.run(request, timeout_s));
  return all;
}

}  // namespace pc
