#include "bench/groups.h"

#include <algorithm>

#include "bench/numbers.h"

namespace pc::bench {
namespace {

using Groups = std::vector<std::vector<Rank>>;

Status refused(const std::string& words, const std::string& why) {
  return Status(Code::kInvalidArgument, "--group " + words + ": " + why);
}

}  // namespace

Result<Groups> groups(const std::string& words, Rank size) {
  if (words.empty() || words == "even-odd") {
    Groups all(words.empty() ? 1 : 2);
    if (static_cast<std::size_t>(size) < all.size()) return refused(words, "that takes two ranks");
    for (Rank rank = 0; rank < size; ++rank) all[static_cast<std::size_t>(rank) % all.size()].push_back(rank);
    return all;
  }
  std::vector<Rank> ranks;
  for (const std::string& word : split(words)) {
    const Result<uint64_t> rank = whole_number(word, 0, static_cast<uint64_t>(size) - 1);
    if (!rank.is_ok()) return refused(words, rank.status().message() + ", the ranks there are");
    const Rank found = static_cast<Rank>(rank.value());
    if (std::find(ranks.begin(), ranks.end(), found) != ranks.end())
      return refused(words, "rank " + word + " is in it twice");
    ranks.push_back(found);
  }
  return Groups{ranks};
}

Result<Membership> join_group(Runtime& runtime, const std::string& words) {
  Communicator& world = runtime.world();
  if (words.empty()) return Membership{world, &world, world.rank() == 0};
  PC_ASSIGN_OR_RETURN(const Groups all, groups(words, world.size()));
  Membership own = {world, nullptr, world.rank() == all.front().front()};
  for (const std::vector<Rank>& ranks : all) {
    if (std::find(ranks.begin(), ranks.end(), world.rank()) == ranks.end()) continue;
    PC_ASSIGN_OR_RETURN(own.group, runtime.make_group(1, ranks));
  }
  return own;
}

Status allreduce(Communicator& group, std::span<int64_t> values, ReduceOp op) {
  Request request;
  request.collective = Collective::kAllreduce;
  request.out = {reinterpret_cast<std::byte*>(values.data()), values.size(), DType::kI64};
  request.in = request.out;
  request.op = op;
  return group.run(request);
}

Status sum_over_groups(const Membership& own, std::optional<uint64_t>& wrong) {
  int64_t sum = wrong && own.group->rank() == 0 ? static_cast<int64_t>(*wrong) : 0;
  PC_TRY(allreduce(own.world, {&sum, 1}, ReduceOp::kSum));
  if (wrong) wrong = static_cast<uint64_t>(sum);
  return Status::ok();
}

}  // namespace pc::bench
