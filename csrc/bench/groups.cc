#include "bench/groups.h"

#include <algorithm>

#include "bench/numbers.h"

namespace pc::bench {
namespace {

using Groups = std::vector<std::vector<Rank>>;

Status refused(const std::string& words, const std::string& why) {
  return Status(Code::kInvalidArgument, "--group " + words + ": " + why);
}

std::vector<Rank> every(Rank step, Rank first, Rank size) {
  std::vector<Rank> ranks;
  for (Rank rank = first; rank < size; rank += step) ranks.push_back(rank);
  return ranks;
}

}  // namespace

Result<Groups> groups(const std::string& words, Rank size) {
  if (words.empty()) return Groups{every(1, 0, size)};
  if (words == "even-odd") {
    if (size < 2) return refused(words, "that takes two ranks");
    return Groups{every(2, 0, size), every(2, 1, size)};
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

}  // namespace pc::bench
