// Which way a group's calls of arrays on GPUs go: a pure function of what its ranks say of themselves, so that all come to
// the same.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace pc {

// What one rank says. Plain data, exchanged as bytes by ranks of one version of this library.
struct DeviceFacts {
  char gpu[56] = {};                                       // its uuid, as text; empty: there is none
  uint64_t host = 0;                                       // of NCCL_HOSTID, a hash; 0: it is not set
  int32_t nccl_major = 0, nccl_minor = 0, nccl_patch = 0;  // 0: there is none
  char why_not[244] = {};                                  // what it lacks, in words; empty: nothing
  void set_gpu(const std::string& uuid, const std::string& host_id);
  void lacks(const std::string& why);  // the first counts; long ones are cut
};
static_assert(sizeof(DeviceFacts) == 320);

// OK: by NCCL. Else kUnsupported, and why, the same words on every rank.
Status can_go_by_nccl(std::span<const DeviceFacts> by_rank);

}  // namespace pc
