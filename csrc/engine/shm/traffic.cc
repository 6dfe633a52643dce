#include "engine/shm/traffic.h"

#include <algorithm>

#include "base/round_up.h"

namespace pc::shm {
namespace {

constexpr std::size_t kLine = 128;

// Returns the size of the largest array that is written in one exchange.
std::size_t most_at_once(const Request& request, Rank ranks, const Limits& limits) {
  switch (request.collective) {
    case Collective::kAllreduce:
    case Collective::kReduce: return limits.combined_at_once;
    case Collective::kBroadcast:  // a single reader would be idle while the root writes
      return ranks == 2 ? limits.moved_at_once / 2 : limits.moved_at_once;
    default: return limits.moved_at_once;
  }
}

std::size_t chunk_for(std::size_t largest_span, const Limits& limits) {
  return std::clamp(round_up(largest_span / 4, kLine), limits.least_chunk, limits.most_chunk);
}

}  // namespace

void Traffic::bind(const Request& request, const Launch& launch, const Limits& limits,
                   const Division& division) {
  const std::size_t largest_message = limits.largest_message();
  like_ = {request.collective,
           request.in.dtype,
           request.out.dtype,
           request.root,
           request.counts.empty() ? launch.size : 0,
           request.in.count,
           request.out.count,
           division};
  collective_ = request.collective;
  rank_ = launch.rank;
  size_ = launch.size;
  root_ = request.root;
  const std::size_t ranks = static_cast<std::size_t>(size_);
  whole_nbytes_ = moves_data(collective_) ? elements_of(request, size_).nbytes() : 0;
  const bool two_stages = collective_ == Collective::kAllreduce || collective_ == Collective::kReduce;
  const bool is_divided = division.slices != 0;  // exchanged between hosts round by round
  const bool is_led = division.leader >= 0;      // exchanged between hosts in one exchange
  in_rounds_ =
      is_divided ||
      (!is_led && (!knows_size(request) ||
                   whole_nbytes_ > std::min(most_at_once(request, launch.size, limits), largest_message)));
  knows_size_ = knows_size(request);
  combines_ = reduces(collective_);
  passes_results_on_ = two_stages && in_rounds_;
  addressed_ = passes_results_on_ || collective_ == Collective::kReduceScatter ||
               collective_ == Collective::kAlltoall || collective_ == Collective::kScatter;
  const bool at_root = rank_ == root_;
  switch (collective_) {
    case Collective::kBroadcast:
    case Collective::kScatter: writes_ = at_root; break;
    case Collective::kGather: writes_ = !at_root; break;
    case Collective::kReduce: writes_ = !at_root || in_rounds_; break;
    default: writes_ = true;
  }
  wants_results_ = passes_results_on_ && (collective_ == Collective::kAllreduce || at_root);
  contributors_ = {0, size_};
  if (is_scan(collective_)) bind_scan();
  const uint32_t n = static_cast<uint32_t>(size_);
  const uint32_t chunks = collective_ == Collective::kAlltoall           ? n * n
                          : passes_results_on_ && is_divided             ? division.slices
                          : has_parts(collective_) || passes_results_on_ ? n
                                                                         : 1;
  if (moves_data(collective_))
    geometry_.bind(request, Shape{collective_, rank_, size_, root_, 1, request.counts.empty()}, chunks);
  largest_part_ = addressed_ && knows_size(request) ? round_up(geometry_.chunk_nbytes(), kLine) : 0;
  if (!is_led && message_nbytes() > largest_message) in_rounds_ = true;
  const std::size_t sharers =
      is_divided ? std::max<std::size_t>(static_cast<std::size_t>(division.most), 2) : ranks;
  const std::size_t readers = addressed_ ? sharers - 1 : 1;
  const std::size_t most = std::max(
      (largest_message - std::min(sizes_nbytes(), largest_message)) / readers / kLine * kLine, kLine);
  const std::size_t span = !knows_size(request)                   ? 0
                           : has_parts(collective_) || addressed_ ? geometry_.chunk_nbytes()
                                                                  : whole_nbytes_;
  chunk_nbytes_ = std::min(chunk_for(span, limits), most);
  if (division.parts > 1) {  // a chunk has the same amount of each part
    const std::size_t piece = chunk_nbytes_ / division.parts / kLine * kLine;
    chunk_nbytes_ = std::max(piece, kLine) * division.parts;
  }
}

void Traffic::bind_scan() {
  contributors_ = pc::contributors({collective_, rank_, size_}, 1, 0);
  writes_ = false;
  for (Rank reader = 0; reader < size_; ++reader)
    writes_ |= reader != rank_ && pc::contributors({collective_, reader, size_}, 1, 0).has(rank_);
}

uint32_t Traffic::name(Rank writer, Rank reader) const {
  if (collective_ == Collective::kAlltoall) return static_cast<uint32_t>(writer * size_ + reader);
  if (addressed_) return static_cast<uint32_t>(reader);
  return has_parts(collective_) ? static_cast<uint32_t>(writer) : 0;
}

bool Traffic::reads_from(Rank writer) const {
  if (writer == rank_) return false;
  switch (collective_) {
    case Collective::kBroadcast:
    case Collective::kScatter: return writer == root_;
    case Collective::kGather: return rank_ == root_;
    case Collective::kReduce: return rank_ == root_ || in_rounds_;
    default: return contributors_.has(writer);
  }
}

Traffic::Span Traffic::outgoing(Rank reader) const {
  if (!moves_data(collective_)) return {};
  const uint32_t wanted = name(rank_, reader);
  return {geometry_.input(wanted), geometry_.nbytes({wanted, 1})};
}

Traffic::Span Traffic::incoming(Rank writer) const {
  if (!moves_data(collective_)) return {};
  const uint32_t wanted = name(writer, rank_);
  return {geometry_.output(wanted), geometry_.nbytes({wanted, 1})};
}

Traffic::Span Traffic::piece(Rank owner) const {
  const uint32_t wanted = static_cast<uint32_t>(owner);
  return {geometry_.output(wanted), geometry_.nbytes({wanted, 1})};
}

std::size_t Traffic::place_in_input(Rank writer) const {
  if (!addressed_) return 0;
  if (collective_ == Collective::kAlltoall) return geometry_.input(static_cast<uint32_t>(rank_));
  return geometry_.input(name(writer, rank_));
}

std::size_t Traffic::sizes_nbytes() const {
  return knows_size_ ? 0 : round_up(sizeof(uint64_t) * static_cast<std::size_t>(size_ - 1), kLine);
}

std::size_t Traffic::message_nbytes() const {
  if (addressed_) return largest_part_ * static_cast<std::size_t>(size_ - 1);
  return outgoing(rank_).nbytes;
}

std::size_t Traffic::place_in_message(Rank writer, Rank reader) const {
  return addressed_ ? largest_part_ * static_cast<std::size_t>(reader - (reader > writer ? 1 : 0)) : 0;
}

}  // namespace pc::shm
