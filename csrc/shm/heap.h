// Memory for arrays that local peers read in place. It consists of pieces of this rank's shared
// memory, of 64 MiB or more, allocated first-fit.
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

// A piece of a rank's memory, in the pages that every rank maps, and the offset of an array in it.
// If `pages` is 0, there is no array.
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

  // Aligned to 128 bytes, or to 2 MiB from that size on; contents unspecified. Returns kSystem if
  // the host has no such memory.
  PC_EXPORT Result<std::byte*> allocate(std::size_t nbytes);
  PC_EXPORT void free(std::byte* memory);  // a result of allocate(); other pointers are ignored
  PC_EXPORT Usage usage() const;
  // Returns nullopt if not all of the array is in the heap.
  std::optional<HeapPlace> find(const std::byte* data, std::size_t nbytes) const;

 private:
  struct Piece {
    uint64_t offset = 0;  // in this rank's memory
    std::span<std::byte> memory = {};
    std::map<std::size_t, std::size_t> gaps = {};  // sizes of the gaps, by their offsets
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
