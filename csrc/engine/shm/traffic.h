// Who puts what into shared memory for whom in one call, in bytes. The same question on every rank gives
// matching answers.
//
// Small calls: every writer puts its whole array there, announces it, and the readers take from it what is
// theirs. Large ones go in rounds of one chunk per reader. An allreduce or reduce is cut into one piece per
// rank: everybody sums its own piece (inputs), and what the others want of it is passed on (results).
#pragma once

#include <cstddef>

#include "engine/bind.h"
#include "engine/request.h"
#include "engine/shm/inter_domain_exchange.h"
#include "engine/shm/limits.h"

namespace pc::shm {

class Traffic {
 public:
  struct Span {  // of an array of this rank
    std::size_t begin = 0, nbytes = 0;
  };
  void bind(const Request& request, const Launch& launch, const Limits& limits,
            const Division& division = {});
  // Whether it was bound to a call like this.
  bool is_for(const Request& request, const Launch& launch, const Division& division = {}) const {
    return request.counts.empty() &&
           like_ == Like{request.collective, request.in.dtype, request.out.dtype, request.root,
                         launch.size,        request.in.count, request.out.count, division};
  }

  std::size_t nbytes() const {
    return whole_nbytes_;
  }  // of the whole call; 0 where not all ranks know it alike
  bool in_rounds() const { return in_rounds_; }
  Rank leader() const {
    return like_.division.leader;
  }  // of a small call that is exchanged between hosts; -1: it is not
  std::size_t chunk_nbytes() const { return chunk_nbytes_; }  // of a round, for one reader; at least 128
  // Where only sender and receiver know a part's size: before the parts of round 0, the sizes of all of them,
  // 8 bytes each.
  std::size_t sizes_nbytes() const;
  bool combines() const { return combines_; }
  bool passes_results_on() const { return passes_results_on_; }

  bool writes() const { return writes_; }  // inputs for others
  bool is_addressed() const {
    return addressed_;
  }                                    // each reader has its own part of what a writer puts there
  bool reads_from(Rank writer) const;  // inputs
  bool wants_results() const { return wants_results_; }
  // In the input array: what is put there for that reader, this rank itself included.
  Span outgoing(Rank reader) const;
  // In the output array: where what that writer has for this rank goes. Of a combination always the same.
  Span incoming(Rank writer) const;
  Span piece(Rank owner) const;  // of results
  // In the writer's input array: where what it has for this rank begins.
  std::size_t place_in_input(Rank writer) const;
  // Inputs may be read where they lie, by everybody until the end of the call: nobody overwrites his own
  // meanwhile.
  bool inputs_stay(bool in_place) const {
    return in_rounds_ && knows_size_ && !(in_place && is_scan(collective_));
  }
  // What is combined: the contributions of these ranks, in this order.
  Contributors contributors() const { return contributors_; }
  // What one writer puts there in a small call, and where in it a reader finds its part.
  std::size_t message_nbytes() const;
  std::size_t place_in_message(Rank writer, Rank reader) const;

 private:
  void bind_scan();
  uint32_t name(Rank writer, Rank reader) const;

  struct Like {
    Collective collective;
    DType in, out;
    Rank root, size;
    std::size_t in_count, out_count;
    Division division;
    bool operator==(const Like&) const = default;
  };
  Like like_ = {};
  Geometry geometry_;
  Collective collective_ = Collective::kBarrier;
  Rank rank_ = 0, size_ = 1, root_ = 0;
  std::size_t whole_nbytes_ = 0, largest_part_ = 0;
  std::size_t chunk_nbytes_ = 0;
  bool knows_size_ = true;
  bool in_rounds_ = false, combines_ = false, passes_results_on_ = false;
  bool writes_ = false, addressed_ = false, wants_results_ = false;
  Contributors contributors_;
};

}  // namespace pc::shm
