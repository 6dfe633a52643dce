// Memory that ranks of one host share: a file without a name. The kernel frees the file when the
// last process that has it ends, even if that process is killed. The file can only grow, so that
// every mapped piece stays valid.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "shm/available_memory.h"
#include "shm/local_peers.h"
#include "shm/mapping.h"

namespace pc {

// This rank's memory. Thread-safety: none.
class OwnSegment {
 public:
  // Creates an empty segment. `available` returns how many bytes may still be allocated; it differs
  // from available_memory only in tests.
  static Result<OwnSegment> create(std::function<uint64_t()> available = [] { return available_memory(); });
  // See LocalPeers::grow. A failure changes nothing.
  Result<SharedRange> grow(std::size_t nbytes);
  // maps the memory as another rank would
  Result<std::span<std::byte>> map(uint64_t offset, std::size_t nbytes);
  int fd() const { return fd_.get(); }
  uint64_t nbytes() const { return nbytes_; }
  void close_in_child() noexcept;

 private:
  OwnSegment(Fd fd, std::function<uint64_t()> available)
      : fd_(std::move(fd)),
        available_(std::move(available)) {}
  Status allocate(std::size_t nbytes);

  Fd fd_;
  std::function<uint64_t()> available_;
  uint64_t nbytes_ = 0;  // size of all ranges that grow() has returned
  std::vector<Mapping> mappings_;
};

// Another rank's memory, by the descriptor that this rank received from it. Thread-safety: none.
class PeerSegment {
 public:
  // Returns kMismatch unless `fd` is memory that is sealed against shrinking and that this process
  // may write.
  static Result<PeerSegment> adopt(Fd fd);
  // See LocalPeers::map. If an earlier mapping covers the piece, the result has the same addresses
  // as before.
  Result<std::span<std::byte>> map(uint64_t offset, std::size_t nbytes);
  int fd() const { return fd_.get(); }
  void close_in_child() noexcept { fd_.reset(); }

 private:
  explicit PeerSegment(Fd fd) : fd_(std::move(fd)) {}

  Fd fd_;
  std::vector<Mapping> mappings_;
};

}  // namespace pc
