// Selects the backend of a group's calls of arrays on GPUs: a pure function of what its ranks
// report about themselves, so that all ranks select the same one.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace pc {

// The report of one rank. Plain data, exchanged as bytes by ranks of one version of this library.
struct DeviceFacts {
  char gpu[56] = {};                                       // its uuid as text; empty: none
  uint64_t host = 0;                                       // a hash of NCCL_HOSTID; 0: it is not set
  int32_t nccl_major = 0, nccl_minor = 0, nccl_patch = 0;  // 0: NCCL is missing
  char why_not[244] = {};                                  // what it lacks, as text; empty: nothing
  void set_gpu(const std::string& uuid, const std::string& host_id);
  void lacks(const std::string& why);  // the first reason is kept; long ones are truncated
};
static_assert(sizeof(DeviceFacts) == 320);

// Returns OK if NCCL can be used. Otherwise returns kUnsupported with the reason, the same text on
// every rank.
Status can_go_by_nccl(std::span<const DeviceFacts> by_rank);

}  // namespace pc
