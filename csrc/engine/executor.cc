#include "engine/executor.h"

namespace pc {

Status ended_early(WaitEnd end, const std::string& where, Rank peer) {
  switch (end) {
    case WaitEnd::kTimeout: return Status(Code::kTimeout, "timed out in " + where).with_peer(peer);
    case WaitEnd::kInterrupted: return Status(Code::kInterrupted, "interrupted in " + where);
    default: return Status(Code::kAborted, "aborted in " + where);
  }
}

}  // namespace pc
