#include "store/prefix.h"

namespace pc {

Status PrefixStore::shown(const Status& status) const {
  const std::size_t at = status.message().find("'" + prefix_);
  if (at == std::string::npos) return status;
  return Status(status.code(), std::string(status.message()).erase(at + 1, prefix_.size()))
      .with_peer(status.peer());
}

Result<StoreAnswer> PrefixStore::run(const StoreCall& call, StoreDeadline deadline) {
  const std::string key = prefix_ + std::string(call.key);
  Result<StoreAnswer> answer = inner_->call({call.op, key, call.value, call.number}, deadline);
  return answer.is_ok() ? std::move(answer) : shown(answer.status());
}

}  // namespace pc
