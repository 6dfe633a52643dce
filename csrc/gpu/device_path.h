// Decides whether the calls of a group with arrays on GPUs can use NCCL. The decision is a pure
// function of what the ranks report about themselves, so that all ranks decide the same.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace pc {

// The report of one rank. Plain data, exchanged as bytes by ranks of one version of this library.
struct DeviceFacts {
  char gpu[56] = {};  // uuid of the rank's GPU, as text; empty: it has none
  uint64_t host = 0;  // hash of the rank's NCCL_HOSTID; 0: it is not set
  int32_t nccl_major = 0, nccl_minor = 0, nccl_patch = 0;  // version of the rank's NCCL; 0: NCCL is missing
  char why_not[244] = {};  // why the rank cannot use NCCL, as text; empty: the rank can use NCCL
  void set_gpu(const std::string& uuid, const std::string& host_id);
  void lacks(const std::string& why);  // sets why_not, unless it is set already; long reasons are truncated
};
static_assert(sizeof(DeviceFacts) == 320);

// Returns OK if these ranks can use NCCL together. Otherwise returns kUnsupported with the reason,
// the same text on every rank.
Status can_go_by_nccl(std::span<const DeviceFacts> by_rank);

}  // namespace pc
