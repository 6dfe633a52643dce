#include "store/table.h"

#include "store/protocol.h"

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

}  // namespace

std::vector<StoreTable::Answer> StoreTable::handle(int client, const StoreCall& call) {
  std::vector<Answer> answers;
  if (waits(call.op) && call.number != kAtOnce) {
    waiting_[std::string(call.key)].push_back({client, call.op});
    answer_waiters(call.key, answers);
    return answers;
  }
  const Result<StoreAnswer> done = values_.run(call);
  if (done.is_ok()) {
    answers.push_back({client, reply(Code::kOk, done.value().value, done.value().number)});
    answer_waiters(call.key, answers);
  } else {
    answers.push_back({client, reply(done.status().code(), done.status().message())});
  }
  return answers;
}

// Answers the waiting clients in the order of arrival. The first pop erases the key, so the clients
// after it continue to wait.
void StoreTable::answer_waiters(std::string_view key, std::vector<Answer>& answers) {
  const auto waiters = waiting_.find(key);
  const std::string* const stored = values_.find(key);
  if (waiters == waiting_.end() || stored == nullptr) return;
  const Reply value = reply(Code::kOk, *stored), nothing = reply(Code::kOk, {});
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
  if (!there) values_.erase(key);
}

void StoreTable::forget(int client) {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    std::erase_if(it->second, [client](const Waiter& each) { return each.client == client; });
    it = it->second.empty() ? waiting_.erase(it) : std::next(it);
  }
}

}  // namespace pc
