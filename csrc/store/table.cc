#include "store/table.h"

#include "store/limits.h"

namespace pc {
namespace {

using Reply = std::shared_ptr<const std::string>;

Reply reply(Code code, std::string_view value, int64_t number = 0) {
  const StoreHeader header = encode(StoreReply{code, static_cast<uint32_t>(value.size()), number});
  auto bytes = std::make_shared<std::string>();
  bytes->reserve(header.size() + value.size());
  bytes->append(header.data(), header.size()).append(value);
  return bytes;
}
Reply reply(const Status& status) { return reply(status.code(), status.message()); }

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
    case StoreOp::kPop:
    case StoreOp::kWait:
      if (found == values_.end() && request.delta == kAtOnce) {
        answers.push_back({client, reply(key_timeout(key))});
        break;
      }
      waiting_[std::string(key)].push_back({client, request.op});
      if (found != values_.end()) answer_waiters(key, answers);
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
      take_out(key);
      answers.push_back({client, reply(Code::kOk, {})});
      break;
    case StoreOp::kEraseAll:
      for (auto at = values_.lower_bound(key); at != values_.end() && at->first.starts_with(key);) {
        nbytes_ -= at->first.size() + at->second.size();
        at = values_.erase(at);
      }
      answers.push_back({client, reply(Code::kOk, {})});
      break;
  }
  return answers;
}

void StoreTable::take_out(std::string_view key) {
  const auto found = values_.find(key);
  if (found == values_.end()) return;
  nbytes_ -= found->first.size() + found->second.size();
  values_.erase(found);
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

// In the order in which they came; the first that pops ends it for those behind.
void StoreTable::answer_waiters(std::string_view key, std::vector<Answer>& answers) {
  const auto waiters = waiting_.find(key);
  if (waiters == waiting_.end()) return;
  const Reply value = reply(Code::kOk, values_.find(key)->second), nothing = reply(Code::kOk, {});
  std::vector<Waiter>& all = waiters->second;
  std::size_t answered = 0;
  bool there = true;
  for (; there && answered < all.size(); ++answered) {
    const Waiter& each = all[answered];
    answers.push_back({each.client, each.op == StoreOp::kWait ? nothing : value});
    there = each.op != StoreOp::kPop;
  }
  all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(answered));
  if (all.empty()) waiting_.erase(waiters);
  if (!there) take_out(key);
}

void StoreTable::forget(int client) {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    std::erase_if(it->second, [client](const Waiter& each) { return each.client == client; });
    it = it->second.empty() ? waiting_.erase(it) : std::next(it);
  }
}

}  // namespace pc
