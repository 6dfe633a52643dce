// Pages of a file mapped for reading and writing; unmapped by the destructor.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "base/status.h"

namespace pc {

// Thread-safety: none; one owner.
class Mapping {
 public:
  // `offset` and `nbytes` are whole pages of the file behind `fd`.
  static Result<Mapping> of(int fd, uint64_t offset, std::size_t nbytes) {
    void* const at =
        ::mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
    if (at == MAP_FAILED) {
      return system_error(
          "mmap of " + std::to_string(nbytes) + " bytes at " + std::to_string(offset) + " of shared memory",
          errno);
    }
    // Populates the pages: otherwise the first message through each page takes 1 us longer. Kernels
    // before Linux 5.14 do not support this request, which then has no effect.
    if (nbytes <= kEnteredAtOnce) (void)::madvise(at, nbytes, kPopulateWrite);
    return Mapping(offset, {static_cast<std::byte*>(at), nbytes});
  }
  Mapping(Mapping&& other) noexcept : offset_(other.offset_), memory_(std::exchange(other.memory_, {})) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(offset_, other.offset_);
    std::swap(memory_, other.memory_);
    return *this;
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (!memory_.empty()) ::munmap(memory_.data(), memory_.size());
  }

  // For a forked child: makes the mapping private, so that other ranks do not see what the child
  // writes later. Pages that the child has not written still have the contents of the file.
  void make_private(int fd) noexcept {
    if (memory_.empty()) return;
    const void* const at = ::mmap(memory_.data(), memory_.size(), PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_FIXED, fd, static_cast<off_t>(offset_));
    // the child must at least not write to the shared pages
    if (at == MAP_FAILED) (void)::mprotect(memory_.data(), memory_.size(), PROT_READ);
  }
  uint64_t offset() const { return offset_; }
  std::span<std::byte> memory() const { return memory_; }
  bool covers(uint64_t offset, std::size_t nbytes) const {
    return offset >= offset_ && offset - offset_ <= memory_.size() &&
           nbytes <= memory_.size() - (offset - offset_);
  }
  // precondition: covers(offset, nbytes)
  std::span<std::byte> piece(uint64_t offset, std::size_t nbytes) const {
    return memory_.subspan(offset - offset_, nbytes);
  }

 private:
  static constexpr std::size_t kEnteredAtOnce = 16UL * 1024 * 1024;
  static constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, which the headers of older systems lack

  Mapping(uint64_t offset, std::span<std::byte> memory) : offset_(offset), memory_(memory) {}
  uint64_t offset_;
  std::span<std::byte> memory_;
};

}  // namespace pc
