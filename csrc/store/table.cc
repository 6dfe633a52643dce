#include "store/table.h"

#include "store/limits.h"

namespace pc {
namespace {

std::string reply(Code code, std::string_view value, int64_t number = 0) {
  const StoreHeader header = encode(StoreReply{code, static_cast<uint32_t>(value.size()), number});
  std::string bytes;
  bytes.reserve(header.size() + value.size());
  bytes.append(header.data(), header.size());
  return bytes.append(value);
}
std::string reply(const Status& status) { return reply(status.code(), status.message()); }

}  // namespace

std::vector<StoreTable::Answer> StoreTable::handle(int client, const StoreRequest& request,
                                                   std::string_view key, std::string_view value) {
  std::vector<Answer> answers;
  const auto found = values_.find(key);
  switch (request.op) {
    case StoreOp::kSet: {
      const Status status = put(key, value);
      answers.push_back({client, reply(status)});
      if (status.is_ok()) answer_waiters(key, answers);
      break;
    }
    case StoreOp::kGet:
      if (found != values_.end()) {
        answers.push_back({client, reply(Code::kOk, found->second)});
      } else {
        waiting_[std::string(key)].push_back(client);
      }
      break;
    case StoreOp::kAdd: {
      std::optional<std::string_view> stored;
      if (found != values_.end()) stored = found->second;
      const Result<int64_t> sum = added(key, stored, request.delta);
      const Status status = sum.is_ok() ? put(key, std::to_string(sum.value())) : sum.status();
      answers.push_back({client, status.is_ok() ? reply(Code::kOk, {}, sum.value()) : reply(status)});
      if (status.is_ok()) answer_waiters(key, answers);
      break;
    }
    case StoreOp::kErase:
      if (found != values_.end()) {
        nbytes_ -= found->first.size() + found->second.size();
        values_.erase(found);
      }
      answers.push_back({client, reply(Code::kOk, {})});
      break;
  }
  return answers;
}

Status StoreTable::put(std::string_view key, std::string_view value) {
  const auto found = values_.find(key);
  const bool is_new = found == values_.end();
  const std::size_t after =
      nbytes_ + value.size() + (is_new ? key.size() : 0) - (is_new ? 0 : found->second.size());
  if ((is_new && values_.size() >= limits_.keys) || after > limits_.total_nbytes) {
    return Status(Code::kUnsupported, "the store is full: " + std::to_string(values_.size()) + " keys, " +
                                          std::to_string(nbytes_) +
                                          " bytes; it is meant for addresses, not for data");
  }
  nbytes_ = after;
  if (is_new) {
    values_.emplace(key, value);
  } else {
    found->second = value;
  }
  return Status::ok();
}

void StoreTable::answer_waiters(std::string_view key, std::vector<Answer>& answers) {
  const auto waiters = waiting_.find(key);
  if (waiters == waiting_.end()) return;
  const std::string bytes = reply(Code::kOk, values_.find(key)->second);
  for (const int waiter : waiters->second) answers.push_back({waiter, bytes});
  waiting_.erase(waiters);
}

void StoreTable::forget(int client) {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    std::erase(it->second, client);
    it = it->second.empty() ? waiting_.erase(it) : std::next(it);
  }
}

}  // namespace pc
