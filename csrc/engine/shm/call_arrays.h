// The caller's arrays in one call, contiguous or in the pieces of a list, and copies between them
// and shared memory.
#pragma once

#include <span>

#include "engine/request.h"
#include "shm/shared_copy.h"

namespace pc::shm {

// A view of the arrays, which it does not own. Thread-safety: none.
class CallArrays {
 public:
  // An output of `past_caches_from` bytes or more is stored past the caches, by non-temporal
  // stores.
  void bind(const Request& request, std::size_t past_caches_from);
  bool has_input() const { return is_there(in_); }
  bool has_output() const { return is_there(out_); }
  const std::byte* input() const { return in_.data; }    // null if there is none or it is a list
  const std::byte* output() const { return out_.data; }  // null if there is none or it is a list

  // Copies from the input into a ring.
  void put(std::byte* to, std::size_t in_begin, std::size_t nbytes, SharedCopy& copy) const;
  // Copies from shared memory into the output.
  void take(const std::byte* from, std::size_t out_begin, std::size_t nbytes) const;
  // Like take(), but `read(piece)` fills the output: it is called for each piece of the output, in
  // order, and returns a Status.
  template <class Read>
  Status fill(std::size_t out_begin, std::size_t nbytes, Read&& read) const {
    for (std::size_t done = 0; done < nbytes;) {
      const std::span<std::byte> piece = out_.at(out_begin + done, nbytes - done);
      PC_TRY(read(piece));
      done += piece.size();
    }
    return Status::ok();
  }
  // Copies bytes from the input to the output: at most `nbytes`, and at most as many as are
  // contiguous in both arrays. Returns their number.
  std::size_t keep(std::size_t in_begin, std::size_t out_begin, std::size_t nbytes) const;
  // Combines `sources`, in this order. Stores the result in the output, if there is one and
  // `out_begin` is not kNowhere. Also stores it in the ring at `also`, if `also` is not null, with
  // the kind of stores `also_by`. A null source stands for the input from `in_begin` on. Advances
  // `sources` past what was combined.
  static constexpr std::size_t kNowhere = ~std::size_t{0};
  void combine(std::span<const std::byte*> sources, std::size_t in_begin, std::size_t out_begin,
               std::size_t nbytes, std::byte* also, Stores also_by) const;

 private:
  static bool is_there(const Location& array) { return array.data != nullptr || array.list != nullptr; }
  void copy_out(std::byte* to, const std::byte* from, std::size_t nbytes) const;

  Location in_, out_;
  DType dtype_ = DType::kU8;
  Reduction op_;
  bool out_is_large_ = false;
};

}  // namespace pc::shm
