// Which bytes each rank puts into shared memory for each other rank in one call. Every rank
// computes this for itself, and the results on all ranks match.
//
// In a small call every writer puts its whole array into shared memory and announces it, and the
// readers take their parts. Larger calls run in rounds of one chunk per reader. An allreduce or
// reduce in rounds cuts the array into one piece per rank: each rank combines its own piece of all
// inputs, and passes the result on to the ranks that want it.
#pragma once

#include <cstddef>

#include "engine/bind.h"
#include "engine/request.h"
#include "engine/shm/inter_domain_exchange.h"
#include "engine/shm/limits.h"

namespace pc::shm {

class Traffic {
 public:
  struct Span {  // a range of one of this rank's arrays
    std::size_t begin = 0, nbytes = 0;
  };
  void bind(const Request& request, const Launch& launch, const Limits& limits,
            const Division& division = {});
  // Returns whether bind() was last called for a call like this one.
  bool is_for(const Request& request, const Launch& launch, const Division& division = {}) const {
    return request.counts.empty() &&
           like_ == Like{request.collective, request.in.dtype, request.out.dtype, request.root,
                         launch.size,        request.in.count, request.out.count, division};
  }

  std::size_t nbytes() const { return whole_nbytes_; }  // of the whole call; 0 if not all ranks know it
  bool in_rounds() const { return in_rounds_; }
  // Returns the leader of a small call that is exchanged between hosts, or -1.
  Rank leader() const { return like_.division.leader; }
  std::size_t chunk_nbytes() const { return chunk_nbytes_; }  // of a round, for one reader; at least 128
  // If only the sender and the receiver of a part know its size, the sizes of all parts, 8 bytes
  // each, precede the parts of round 0. Returns the number of bytes that the sizes take, or 0.
  std::size_t sizes_nbytes() const;
  bool combines() const { return combines_; }
  bool passes_results_on() const { return passes_results_on_; }

  bool writes() const { return writes_; }  // this rank puts inputs for other ranks
  // Returns whether a writer puts a separate part into shared memory for each reader.
  bool is_addressed() const { return addressed_; }
  bool reads_from(Rank writer) const;  // whether this rank reads inputs of `writer`
  bool wants_results() const { return wants_results_; }
  // Returns the range of this rank's input that is for `reader`, which may be this rank itself.
  Span outgoing(Rank reader) const;
  // Returns the range of this rank's output for the data that `writer` has for this rank. If the
  // call combines, the range is the same for all writers.
  Span incoming(Rank writer) const;
  Span piece(Rank owner) const;  // range of the output that `owner` combines
  // Returns the offset of the data for this rank in the writer's input.
  std::size_t place_in_input(Rank writer) const;
  // Returns true if every rank may read inputs in place until the end of the call, because no rank
  // overwrites its own input before then.
  bool inputs_stay(bool in_place) const {
    return in_rounds_ && knows_size_ && !(in_place && is_scan(collective_));
  }
  // The contributions of these ranks are combined, in this order.
  Contributors contributors() const { return contributors_; }
  // message_nbytes() returns the size of a writer's message in a small call, and place_in_message()
  // the offset of a reader's part in it.
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
