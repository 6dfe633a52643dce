// A list of memory ranges that is treated as one sequence of bytes, so that a plan handles a list
// of arrays like a single array.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace pc {

// A view: it does not own the memory. Thread-safety: the same as std::vector.
class IoVec {
 public:
  // appends; extends the last piece if the new range is adjacent to it
  void add(std::byte* data, std::size_t nbytes) {
    if (nbytes == 0) return;
    const bool joins = !pieces_.empty() && pieces_.back().data + (nbytes_ - pieces_.back().begin) == data;
    if (!joins) pieces_.push_back({data, nbytes_});
    has_joined_ = has_joined_ || joins;
    nbytes_ += nbytes;
  }
  // Appends as a separate piece, even if the memory directly follows the last piece.
  void add_separate(std::byte* data, std::size_t nbytes) {
    if (nbytes != 0) pieces_.push_back({data, nbytes_});
    nbytes_ += nbytes;
  }
  std::size_t pieces() const { return pieces_.size(); }
  bool has_joined() const { return has_joined_; }  // whether a piece consists of several added ranges
  std::size_t nbytes() const { return nbytes_; }
  // Returns true if every piece holds a whole number of elements of `element_nbytes` bytes.
  bool holds_whole(std::size_t element_nbytes) const {
    return nbytes_ % element_nbytes == 0 &&
           std::all_of(pieces_.begin(), pieces_.end(),
                       [&](const Piece& piece) { return piece.begin % element_nbytes == 0; });
  }
  // Returns the contiguous bytes that begin at offset `begin`: at most `most`, and at most to the
  // end of their piece. Precondition: begin < nbytes().
  std::span<std::byte> at(std::size_t begin, std::size_t most) const {
    const auto next =
        std::upper_bound(pieces_.begin(), pieces_.end(), begin,
                         [](std::size_t place, const Piece& piece) { return place < piece.begin; });
    const Piece& piece = *(next - 1);
    const std::size_t end = next == pieces_.end() ? nbytes_ : next->begin;
    return {piece.data + (begin - piece.begin), std::min(most, end - begin)};
  }

 private:
  struct Piece {
    std::byte* data;
    std::size_t begin;  // offset of the piece's first byte in the whole sequence
  };
  std::vector<Piece> pieces_;
  std::size_t nbytes_ = 0;
  bool has_joined_ = false;
};

// A position in memory. If `list` is null, the bytes are contiguous at `data`; otherwise they begin
// at offset `begin` of `list`.
struct Location {
  std::byte* data = nullptr;
  const IoVec* list = nullptr;
  std::size_t begin = 0;
  std::span<std::byte> at(std::size_t offset, std::size_t most) const {
    return list == nullptr ? std::span(data + offset, most) : list->at(begin + offset, most);
  }
};

// A read-only view of bytes that are either contiguous or a range of an IoVec.
class ConstIoVec {
 public:
  ConstIoVec() = default;
  // Implicit, because contiguous bytes are the common case.
  template <std::convertible_to<std::span<const std::byte>> Together>
  ConstIoVec(const Together& together) : together_(together) {}
  ConstIoVec(const Location& place, std::size_t nbytes)
      : together_(place.data, place.list == nullptr ? nbytes : 0),
        list_(place.list),
        begin_(place.begin),
        nbytes_(nbytes) {}

  std::size_t size() const { return list_ == nullptr ? together_.size() : nbytes_; }
  bool empty() const { return size() == 0; }
  std::optional<std::span<const std::byte>> together() const {
    return list_ == nullptr ? std::optional(together_) : std::nullopt;
  }
  ConstIoVec slice(std::size_t offset, std::size_t nbytes) const {
    if (list_ == nullptr) return together_.subspan(offset, nbytes);
    return {Location{nullptr, list_, begin_ + offset}, nbytes};
  }
  // Calls `take(piece)` for each piece, in order.
  template <class Take>
  void each(Take&& take) const {
    if (list_ == nullptr) return take(together_);
    for (std::size_t done = 0; done < nbytes_;) {
      const std::span<const std::byte> piece = list_->at(begin_ + done, nbytes_ - done);
      take(piece);
      done += piece.size();
    }
  }
  // Returns how many of the first `most` bytes are in the first `pieces` pieces.
  std::size_t within(std::size_t pieces, std::size_t most) const {
    if (list_ == nullptr) return most;
    std::size_t nbytes = 0;
    for (; pieces > 0 && nbytes < most; --pieces) nbytes += list_->at(begin_ + nbytes, most - nbytes).size();
    return nbytes;
  }

 private:
  std::span<const std::byte> together_;
  const IoVec* list_ = nullptr;
  std::size_t begin_ = 0, nbytes_ = 0;
};

// Divides the copy of `from` to offset `offset` of `to` into ranges that are contiguous on both
// sides, and calls `apply(target, source, nbytes)` for each of them.
template <class Apply>
void copy_pieces(std::span<const std::byte> from, const Location& to, std::size_t offset, Apply&& apply) {
  while (!from.empty()) {
    const std::span<std::byte> target = to.at(offset, from.size());
    apply(target.data(), from.data(), target.size());
    offset += target.size();
    from = from.subspan(target.size());
  }
}
template <class Apply>
void copy_pieces(const ConstIoVec& from, const Location& to, Apply&& apply) {
  std::size_t offset = 0;
  from.each([&](std::span<const std::byte> piece) {
    copy_pieces(piece, to, offset, apply);
    offset += piece.size();
  });
}

}  // namespace pc
