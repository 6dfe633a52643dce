#include "store/store.h"

#include "store/key_list.h"

namespace pc {

Result<StoreAnswer> Store::call(const StoreCall& call, StoreDeadline deadline) {
  const bool may_be_empty = call.op == StoreOp::kKeys || call.op == StoreOp::kEraseAll;
  if ((call.key.empty() && !may_be_empty) || call.key.size() > kMaxKeyBytes)
    return invalid_argument("store key of " + std::to_string(call.key.size()) + " bytes: 1 to " +
                            std::to_string(kMaxKeyBytes) + " are allowed");
  if (call.value.size() > kMaxValueBytes)
    return invalid_argument("store value of " + std::to_string(call.value.size()) + " bytes for key '" +
                            std::string(call.key) + "': at most " + std::to_string(kMaxValueBytes) +
                            " are allowed");
  return run(call, deadline);
}

Status Store::set(std::string_view key, std::string_view value, StoreDeadline deadline) {
  return call({StoreOp::kSet, key, value}, deadline).status();
}

Result<std::string> Store::get(std::string_view key, StoreDeadline deadline) {
  PC_ASSIGN_OR_RETURN(StoreAnswer answer, call({StoreOp::kGet, key}, deadline));
  return std::move(answer.value);
}

Result<std::string> Store::pop(std::string_view key, StoreDeadline deadline) {
  PC_ASSIGN_OR_RETURN(StoreAnswer answer, call({StoreOp::kPop, key}, deadline));
  return std::move(answer.value);
}

Status Store::wait(std::string_view key, StoreDeadline deadline) {
  return call({StoreOp::kWait, key}, deadline).status();
}

Result<StoreAnswer> Store::look(StoreOp op, std::string_view key, StoreDeadline deadline) {
  return call({op, key, {}, kAtOnce}, deadline);
}

Result<std::optional<std::string>> Store::try_get(std::string_view key, StoreDeadline deadline) {
  PC_ASSIGN_OR_RETURN(StoreAnswer answer, look(StoreOp::kGet, key, deadline));
  if (answer.number == kMissing) return std::optional<std::string>();
  return std::optional<std::string>(std::move(answer.value));
}

Result<bool> Store::check(std::string_view key, StoreDeadline deadline) {
  PC_ASSIGN_OR_RETURN(const StoreAnswer answer, look(StoreOp::kWait, key, deadline));
  return answer.number != kMissing;
}

Result<int64_t> Store::add(std::string_view key, int64_t delta, StoreDeadline deadline) {
  PC_ASSIGN_OR_RETURN(const StoreAnswer answer, call({StoreOp::kAdd, key, {}, delta}, deadline));
  return answer.number;
}

Status Store::append(std::string_view key, std::string_view value, StoreDeadline deadline) {
  return call({StoreOp::kAppend, key, value}, deadline).status();
}

Result<std::string> Store::compare_set(std::string_view key, std::string_view expected,
                                       std::string_view desired, StoreDeadline deadline) {
  const std::string both = std::string(expected).append(desired);
  const StoreCall request{StoreOp::kCompareSet, key, both, static_cast<int64_t>(expected.size())};
  PC_ASSIGN_OR_RETURN(StoreAnswer answer, call(request, deadline));
  return std::move(answer.value);
}

Result<bool> Store::erase(std::string_view key, StoreDeadline deadline) {
  PC_ASSIGN_OR_RETURN(const StoreAnswer answer, call({StoreOp::kErase, key}, deadline));
  return answer.number != 0;
}

Status Store::erase_all(std::string_view prefix, StoreDeadline deadline) {
  return call({StoreOp::kEraseAll, prefix}, deadline).status();
}

Result<std::vector<std::string>> Store::keys(std::string_view prefix, StoreDeadline deadline) {
  std::vector<std::string> all;
  std::string after;
  for (;;) {
    PC_ASSIGN_OR_RETURN(const StoreAnswer page, call({StoreOp::kKeys, prefix, after}, deadline));
    const std::size_t before = all.size();
    for (KeyListReader reader(page.value); const auto key = reader.next();) {
      after = *key;
      all.push_back(std::string(prefix).append(after));
    }
    if (page.number == 0) return all;
    if (all.size() == before) return Status(Code::kPeerFailure, "malformed list of store keys");
  }
}

Status key_timeout(std::string_view key, bool is_sure) {
  return Status(Code::kTimeout, "timed out waiting for store key '" + std::string(key) +
                                    "': no rank has set it" +
                                    (is_sure ? "" : ", or the store does not answer"));
}

}  // namespace pc
