#include "gpu/nccl_meeting.h"

#include <string>

namespace pc {
namespace {

// What rank 0 tells the others. Without an id they must not wait for one.
struct NcclInvitation {
  nccl::UniqueId id = {};
  char why_not[128] = {};
};

}  // namespace

Result<nccl::UniqueId> meet_by_nccl(Communicator& group, const nccl::Api& api, double timeout_s) {
  NcclInvitation invitation;
  if (group.rank() == 0) {
    const Result<nccl::UniqueId> made = nccl::make_unique_id(api);
    if (made.is_ok()) {
      invitation.id = made.value();
    } else {
      made.status().message().copy(invitation.why_not, sizeof invitation.why_not - 1);
    }
  }
  Request broadcast;
  broadcast.collective = Collective::kBroadcast;
  broadcast.out = {reinterpret_cast<std::byte*>(&invitation), sizeof invitation, DType::kU8};
  if (group.rank() == 0) broadcast.in = broadcast.out;
  broadcast.label = "where NCCL meets";
  PC_TRY(group.run(broadcast, timeout_s));
  invitation.why_not[sizeof invitation.why_not - 1] = '\0';
  if (invitation.why_not[0] == '\0') return invitation.id;
  return Status(Code::kUnsupported,
                std::string("rank 0 cannot let the ranks meet by NCCL: ") + invitation.why_not);
}

}  // namespace pc
