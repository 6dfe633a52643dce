#include "gpu/ipc/ipc_steps.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace pc {
namespace {

// A range of elements.
struct Stretch {
  std::size_t begin = 0, count = 0;
};

// Returns one of the pieces into which `count` elements are divided. If the array is aligned for
// vector access, so are its pieces. The two elements of a pair are in the same piece.
Stretch piece_of(std::size_t count, std::size_t index, std::size_t pieces) {
  constexpr std::size_t kGrain = 64;
  const std::size_t each = (count + pieces * kGrain - 1) / (pieces * kGrain) * kGrain;
  const std::size_t begin = std::min(count, index * each);
  return {begin, std::min(each, count - begin)};
}

// Returns the piece of `worker` if `count` elements are divided among all workers. The piece is
// empty if `worker` is not a worker.
Stretch piece_of(std::size_t count, Rank worker, std::span<const Rank> workers) {
  std::vector<Rank> all(workers.begin(), workers.end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  const auto place = std::find(all.begin(), all.end(), worker);
  return place == all.end() ? Stretch{}
                            : piece_of(count, static_cast<std::size_t>(place - all.begin()), all.size());
}

class Steps {
 public:
  Steps(const Request& request, Rank rank, std::span<const Rank> workers, std::span<const IpcArrays> arrays)
      : request_(request),
        ranks_(arrays.size()),
        arrays_(arrays),
        elements_(elements_of(request, static_cast<Rank>(arrays.size()))),
        mine_(piece_of(elements_.count, rank, workers)) {
    for (std::size_t r = 0; r < ranks_; ++r)
      if (workers[r] == rank) moved_.push_back(static_cast<Rank>(r));
  }

  std::vector<IpcStep> made() && {
    add_cut();
    for (const Rank each : moved_) add_of(each);
    std::erase_if(steps_, [](const IpcStep& move) { return move.count == 0 || move.to.empty(); });
    return std::move(steps_);
  }

 private:
  // Adds the steps for data that are divided into one piece per worker.
  void add_cut() {
    if (mine_.count == 0 || has_parts(request_.collective)) return;
    if (reduces(request_.collective)) return combine();
    if (request_.collective == Collective::kBroadcast)
      copy(input(request_.root, mine_.begin), every_output(mine_), mine_.count);
  }
  // Adds the steps for the part of `rank`; this rank is the worker of `rank`.
  void add_of(Rank rank) {
    const Rank root = request_.root;
    switch (request_.collective) {
      case Collective::kReduceScatter: return reduce(all_ranks(), part(rank), {output(rank, 0)});
      case Collective::kAllgather: return copy(input(rank, 0), every_output(part(rank)), part(rank).count);
      case Collective::kGather:
        return copy(input(rank, 0), {output(root, part(rank).begin)}, part(rank).count);
      case Collective::kScatter:
        return copy(input(root, part(rank).begin), {output(rank, 0)}, part(rank).count);
      case Collective::kAlltoall: return alltoall(rank);
      default: return;  // handled by add_cut(), or a barrier, which moves nothing
    }
  }

  // Computes each result once, even if several ranks need it. Begins with the result that has the
  // most contributors: in an in-place call, each result overwrites only inputs that no later result
  // needs.
  void combine() {
    struct Result {
      Contributors of;
      std::vector<std::byte*> to;
    };
    std::vector<Result> results;
    for (Rank rank = 0; rank < all_ranks().to; ++rank) {
      const Shape shape{request_.collective, rank, all_ranks().to, request_.root};
      if (!has_output(shape)) continue;
      const Contributors of = contributors(shape, 1, 0);
      const auto same = std::ranges::find(results, of, &Result::of);
      Result& result = same != results.end() ? *same : results.emplace_back(Result{of, {}});
      result.to.push_back(output(rank, mine_.begin));
    }
    std::ranges::stable_sort(results, std::greater(),
                             [](const Result& each) { return each.of.to - each.of.from; });
    for (Result& each : results) reduce(each.of, mine_, std::move(each.to));
  }
  void alltoall(Rank rank) {
    const auto sum = [](std::span<const uint64_t> counts, std::size_t end) {
      return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(end),
                             std::size_t{0});
    };
    const std::size_t self = static_cast<std::size_t>(rank);
    const std::span<const uint64_t> counts = arrays_[self].counts;
    const std::size_t even = request_.in.count / ranks_;
    for (std::size_t to = 0; to < ranks_; ++to) {
      const std::size_t count = counts.empty() ? even : counts[to];
      const std::size_t begin = counts.empty() ? even * to : sum(counts, to);
      const std::size_t place = counts.empty() ? even * self : sum(arrays_[to].recv_counts, self);
      copy(input(rank, begin), {output(static_cast<Rank>(to), place)}, count);
    }
  }

  Contributors all_ranks() const { return {0, static_cast<Rank>(ranks_)}; }
  void reduce(Contributors of, Stretch what, std::vector<std::byte*> to) {
    std::vector<const std::byte*> from;
    for (Rank rank = of.from; rank < of.to; ++rank) from.push_back(input(rank, what.begin));
    steps_.push_back({std::move(from), std::move(to), what.count, true});
  }
  void copy(const std::byte* from, std::vector<std::byte*> to, std::size_t count) {
    std::erase(to, from);  // if the call is in place, this output has the data already
    steps_.push_back({{from}, std::move(to), count, false});
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
    for (const IpcArrays& each : arrays_) all.push_back(each.out + nbytes(what.begin));
    return all;
  }

  const Request& request_;
  const std::size_t ranks_;
  const std::span<const IpcArrays> arrays_;
  const Elements elements_;
  const Stretch mine_;
  std::vector<Rank> moved_;  // the ranks for which this rank is the worker
  std::vector<IpcStep> steps_;
};

}  // namespace

std::vector<IpcStep> ipc_steps(const Request& request, Rank rank, std::span<const Rank> workers,
                               std::span<const IpcArrays> arrays) {
  return Steps(request, rank, workers, arrays).made();
}

}  // namespace pc
