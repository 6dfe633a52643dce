// Which rank puts what into shared memory for which other rank in one call, in bytes. All ranks get
// matching answers.
//
// Small calls: every writer puts its whole array there and announces it, and the readers take their
// parts. Larger calls are done in rounds of one chunk per reader. The array of an allreduce or
// reduce is cut into one piece per rank: each rank combines its own piece (inputs), and passes on
// what the other ranks want of it (results).
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
  // Returns whether the object was bound to a call like this one.
  bool is_for(const Request& request, const Launch& launch, const Division& division = {}) const {
    return request.counts.empty() &&
           like_ == Like{request.collective, request.in.dtype, request.out.dtype, request.root,
                         launch.size,        request.in.count, request.out.count, division};
  }

  std::size_t nbytes() const { return whole_nbytes_; }  // of the whole call; 0 if not all ranks know it
  bool in_rounds() const { return in_rounds_; }
  Rank leader() const {
    return like_.division.leader;
  }  // of a small call that is exchanged between hosts; -1: none
  std::size_t chunk_nbytes() const { return chunk_nbytes_; }  // of a round, for one reader; at least 128
  // If only sender and receiver know a part's size: bytes for the sizes of all parts, 8 each, which
  // precede the parts of round 0. Otherwise 0.
  std::size_t sizes_nbytes() const;
  bool combines() const { return combines_; }
  bool passes_results_on() const { return passes_results_on_; }

  bool writes() const { return writes_; }  // this rank puts inputs for other ranks
  bool is_addressed() const {
    return addressed_;
  }                                    // each reader has its own part of what a writer puts there
  bool reads_from(Rank writer) const;  // inputs of that rank
  bool wants_results() const { return wants_results_; }
  // In the input array: what is put there for that reader, which may be this rank itself.
  Span outgoing(Rank reader) const;
  // In the output array: the destination of what that writer has for this rank. If the call
  // combines, it is the same for all writers.
  Span incoming(Rank writer) const;
  Span piece(Rank owner) const;  // of results
  // In the writer's input array: the beginning of what it has for this rank.
  std::size_t place_in_input(Rank writer) const;
  // Returns whether inputs may be read in place by every rank until the end of the call, because no
  // rank overwrites its own input before then.
  bool inputs_stay(bool in_place) const {
    return in_rounds_ && knows_size_ && !(in_place && is_scan(collective_));
  }
  // The contributions of these ranks are combined, in this order.
  Contributors contributors() const { return contributors_; }
  // The size of what one writer puts there in a small call, and the offset of a reader's part in
  // it.
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
