#include "comm/peer_moves.h"

#include <algorithm>
#include <numeric>

namespace pc {
namespace {

// In elements.
struct Stretch {
  std::size_t begin = 0, count = 0;
};

// Pieces begin where vectors do if the array does, and pairs stay together.
Stretch piece_of(std::size_t count, Rank rank, std::size_t ranks) {
  constexpr std::size_t kGrain = 64;
  const std::size_t each = (count + ranks * kGrain - 1) / (ranks * kGrain) * kGrain;
  const std::size_t begin = std::min(count, static_cast<std::size_t>(rank) * each);
  return {begin, std::min(each, count - begin)};
}

class Moves {
 public:
  Moves(const Request& request, Rank rank, std::span<const PeerArrays> arrays)
      : request_(request),
        rank_(rank),
        ranks_(arrays.size()),
        arrays_(arrays),
        elements_(elements_of(request, static_cast<Rank>(arrays.size()))),
        mine_(piece_of(elements_.count, rank, ranks_)) {}

  std::vector<PeerMove> made() && {
    add();
    std::erase_if(moves_, [](const PeerMove& move) { return move.count == 0 || move.to.empty(); });
    return std::move(moves_);
  }

 private:
  void add() {
    const Rank root = request_.root;
    switch (request_.collective) {
      case Collective::kAllreduce: return reduce(ranks_, mine_, every_output(mine_));
      case Collective::kReduce: return reduce(ranks_, mine_, {output(root, mine_.begin)});
      case Collective::kReduceScatter: return reduce(ranks_, part(rank_), {output(rank_, 0)});
      case Collective::kScan:
      case Collective::kExscan: return scan();
      case Collective::kBroadcast: return copy(input(root, mine_.begin), every_output(mine_), mine_.count);
      case Collective::kAllgather: return copy(input(rank_, 0), every_output(part(rank_)), part(rank_).count);
      case Collective::kGather:
        return copy(input(rank_, 0), {output(root, part(rank_).begin)}, part(rank_).count);
      case Collective::kScatter:
        return copy(input(root, part(rank_).begin), {output(rank_, 0)}, part(rank_).count);
      case Collective::kAlltoall: return alltoall();
      default: return;  // a barrier moves nothing
    }
  }

  void scan() {
    const std::size_t own = request_.collective == Collective::kScan ? 1 : 0;
    for (std::size_t k = ranks_; k-- > 0;) {
      if (k + own > 0) reduce(k + own, mine_, {output(static_cast<Rank>(k), mine_.begin)});
    }
  }
  void alltoall() {
    const auto sum = [](std::span<const uint64_t> counts, std::size_t end) {
      return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(end),
                             std::size_t{0});
    };
    const std::size_t self = static_cast<std::size_t>(rank_);
    const std::span<const uint64_t> counts = arrays_[self].counts;
    const std::size_t even = request_.in.count / ranks_;
    for (std::size_t to = 0; to < ranks_; ++to) {
      const std::size_t count = counts.empty() ? even : counts[to];
      const std::size_t begin = counts.empty() ? even * to : sum(counts, to);
      const std::size_t place = counts.empty() ? even * self : sum(arrays_[to].recv_counts, self);
      copy(input(rank_, begin), {output(static_cast<Rank>(to), place)}, count);
    }
  }

  // The first `sources` inputs.
  void reduce(std::size_t sources, Stretch what, std::vector<std::byte*> to) {
    std::vector<const std::byte*> from;
    for (std::size_t k = 0; k < sources; ++k) from.push_back(input(static_cast<Rank>(k), what.begin));
    moves_.push_back({std::move(from), std::move(to), what.count, true});
  }
  void copy(const std::byte* from, std::vector<std::byte*> to, std::size_t count) {
    std::erase(to, from);  // in place
    moves_.push_back({{from}, std::move(to), count, false});
  }

  Stretch part(Rank rank) const {
    const std::size_t r = static_cast<std::size_t>(rank);
    if (request_.counts.empty()) {
      const std::size_t even = elements_.count / ranks_;
      return {r * even, even};
    }
    const auto begin = request_.counts.begin();
    return {std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(r), std::size_t{0}),
            request_.counts[r]};
  }
  std::size_t nbytes(std::size_t count) const { return count * size_of(elements_.dtype); }
  const std::byte* input(Rank rank, std::size_t begin) const {
    return arrays_[static_cast<std::size_t>(rank)].in + nbytes(begin);
  }
  std::byte* output(Rank rank, std::size_t begin) const {
    return arrays_[static_cast<std::size_t>(rank)].out + nbytes(begin);
  }
  std::vector<std::byte*> every_output(Stretch what) const {
    std::vector<std::byte*> all;
    for (const PeerArrays& each : arrays_) all.push_back(each.out + nbytes(what.begin));
    return all;
  }

  const Request& request_;
  const Rank rank_;
  const std::size_t ranks_;
  const std::span<const PeerArrays> arrays_;
  const Elements elements_;
  const Stretch mine_;
  std::vector<PeerMove> moves_;
};

}  // namespace

std::vector<PeerMove> peer_moves(const Request& request, Rank rank, std::span<const PeerArrays> arrays) {
  return Moves(request, rank, arrays).made();
}

}  // namespace pc
