#include "gpu/nccl_id_exchange.h"

#include <string>

namespace pc {
namespace {

// What rank 0 sends to the other ranks: the id or, if it cannot create one, the reason, so that the
// other ranks do not wait for an id.
struct NcclIdMessage {
  nccl::UniqueId id = {};
  char why_not[128] = {};
};

}  // namespace

Result<nccl::UniqueId> exchange_unique_id(Communicator& group, const nccl::Api& api, double timeout_s) {
  NcclIdMessage message;
  if (group.rank() == 0) {
    const Result<nccl::UniqueId> made = nccl::make_unique_id(api);
    if (made.is_ok()) {
      message.id = made.value();
    } else {
      made.status().message().copy(message.why_not, sizeof message.why_not - 1);
    }
  }
  Request broadcast;
  broadcast.collective = Collective::kBroadcast;
  broadcast.out = {reinterpret_cast<std::byte*>(&message), sizeof message, DType::kU8};
  if (group.rank() == 0) broadcast.in = broadcast.out;
  broadcast.label = "the unique id for NCCL";
  PC_TRY(group.run(broadcast, timeout_s));
  message.why_not[sizeof message.why_not - 1] = '\0';
  if (message.why_not[0] == '\0') return message.id;
  return Status(Code::kUnsupported,
                std::string("rank 0 cannot create a unique id for NCCL: ") + message.why_not);
}

}  // namespace pc
