// Memory for arrays that local peers read where they lie. Pieces of 64 MiB or more of this rank's shared
// memory, cut first-fit.
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

// A piece of a rank's memory, in pages as everybody maps it, and where in it an array begins. pages 0: no array.
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

  // Aligned to 128 bytes, to 2 MiB from that size on; contents unspecified. kSystem: the host has no such memory.
  PC_EXPORT Result<std::byte*> allocate(std::size_t nbytes);
  PC_EXPORT void free(std::byte* memory);  // what allocate() gave
  PC_EXPORT Usage usage() const;
  // nullopt: not all of it lies in the heap.
  std::optional<HeapPlace> find(const std::byte* data, std::size_t nbytes) const;

 private:
  struct Piece {
    uint64_t offset = 0;  // in this rank's memory
    std::span<std::byte> memory = {};
    std::map<std::size_t, std::size_t> gaps = {};  // free bytes, by where they begin
  };
  static std::optional<std::size_t> take(Piece& piece, std::size_t nbytes, std::size_t alignment);
  Piece* piece_of(const std::byte* data);

  LocalPeers& local_peers_;
  mutable std::mutex mutex_;  // guards what follows
  std::vector<Piece> pieces_;
  std::map<std::byte*, std::size_t> taken_;
  Usage usage_;
};

}  // namespace pc::shm
