// Memory for arrays that local peers read in place. The heap consists of pieces of this rank's
// shared memory, each of 64 MiB or more, in which arrays are allocated first-fit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "base/export.h"
#include "shm/local_peers.h"

namespace pc::shm {

// The position of an array: a piece of a rank's shared memory, counted in pages, and the offset of
// the array in that piece. If `pages` is 0, there is no array.
struct HeapPlace {
  uint32_t first_page = 0, pages = 0;
  uint64_t offset = 0;
};
inline constexpr std::size_t kPage = 4096;

// Thread-safety: all methods.
class Heap {
 public:
  struct Usage {
    std::size_t reserved_nbytes = 0, used_nbytes = 0;
  };
  explicit Heap(LocalPeers& local_peers) : local_peers_(local_peers) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;
  ~Heap() = default;

  // Returns memory with unspecified contents. It is aligned to 128 bytes, or to 2 MiB if it has
  // that size or more. Fails with kSystem if the host does not have enough memory.
  PC_EXPORT Result<std::byte*> allocate(std::size_t nbytes);
  PC_EXPORT void free(std::byte* memory);  // a result of allocate(); other pointers are ignored
  PC_EXPORT Usage usage() const;
  // Returns the position of an array, or nullopt if any part of the array is outside the heap.
  std::optional<HeapPlace> find(const std::byte* data, std::size_t nbytes) const;

 private:
  struct Piece {
    uint64_t offset = 0;  // offset of the piece in this rank's memory
    std::span<std::byte> memory = {};
    std::map<std::size_t, std::size_t> gaps = {};  // the free ranges: sizes by offsets
  };
  static std::optional<std::size_t> take(Piece& piece, std::size_t nbytes, std::size_t alignment);
  Piece* piece_of(const std::byte* data);

  LocalPeers& local_peers_;
  mutable std::mutex mutex_;  // guards the members below
  std::vector<Piece> pieces_;
  std::map<std::byte*, std::size_t> taken_;
  Usage usage_;
};

}  // namespace pc::shm
