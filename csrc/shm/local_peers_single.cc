#include "shm/local_peers_single.h"

#include <sys/mman.h>

#include <cerrno>
#include <mutex>
#include <string>
#include <vector>

#include "base/round_up.h"
#include "shm/event_fd.h"

namespace pc {
namespace {

constexpr std::size_t kPage = 4096;
constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, which the headers of older systems lack

// Allocates the pages, not only the addresses, because touching a page that is not available ends
// the process. Kernels before Linux 5.14 do not support the request and allocate each page when it
// is touched.
int make_pages(void* at, std::size_t nbytes) {
  return ::madvise(at, nbytes, kPopulateWrite) == 0 || errno == EINVAL ? 0 : errno;
}

class SingleLocalPeers final : public LocalPeers {
 public:
  SingleLocalPeers(Rank self, EventFd notifier) : self_(self), notifier_(std::move(notifier)) {}
  SingleLocalPeers(const SingleLocalPeers&) = delete;
  SingleLocalPeers& operator=(const SingleLocalPeers&) = delete;
  ~SingleLocalPeers() override {
    for (const SharedRange& piece : pieces_) ::munmap(piece.memory.data(), piece.memory.size());
  }
  bool has(Rank rank) const override { return rank == self_; }
  Result<SharedRange> grow(std::size_t nbytes) override;
  Result<std::span<std::byte>> map(Rank rank, uint64_t offset, std::size_t nbytes) override;
  void notify(Rank) noexcept override { notifier_.notify(); }
  int notify_fd() const override { return notifier_.fd(); }
  bool clear_notification() noexcept override { return notifier_.clear_notification(); }
  void close_in_child() noexcept override { notifier_.close_in_child(); }

 private:
  const Rank self_;
  EventFd notifier_;
  std::mutex mutex_;  // guards the members below
  std::vector<SharedRange> pieces_;
};

Result<SharedRange> SingleLocalPeers::grow(std::size_t nbytes) {
  const std::lock_guard lock(mutex_);
  nbytes = round_up(nbytes, kPage);
  void* const at = ::mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return system_error("mmap of " + std::to_string(nbytes) + " bytes", errno);
  if (const int error = make_pages(at, nbytes); error != 0) {
    ::munmap(at, nbytes);
    return system_error("madvise of " + std::to_string(nbytes) + " bytes", error);
  }
  const uint64_t offset = pieces_.empty() ? 0 : pieces_.back().offset + pieces_.back().memory.size();
  pieces_.push_back({offset, {static_cast<std::byte*>(at), nbytes}});
  return pieces_.back();
}

Result<std::span<std::byte>> SingleLocalPeers::map(Rank rank, uint64_t offset, std::size_t nbytes) {
  const std::lock_guard lock(mutex_);
  for (const SharedRange& piece : pieces_) {
    const bool begins_there = offset >= piece.offset && offset - piece.offset < piece.memory.size();
    const std::size_t at = begins_there ? offset - piece.offset : 0;
    if (rank == self_ && begins_there && nbytes <= piece.memory.size() - at)
      return piece.memory.subspan(at, nbytes);
  }
  return Status(Code::kInternal, "rank " + std::to_string(rank) + " shares no such memory");
}

}  // namespace

Result<std::unique_ptr<LocalPeers>> make_single_local_peers(Rank self) {
  PC_ASSIGN_OR_RETURN(EventFd notifier, EventFd::create());
  auto alone = std::make_unique<SingleLocalPeers>(self, std::move(notifier));
  PC_TRY(alone->grow(LocalPeers::kFirstNbytes).status());
  return std::unique_ptr<LocalPeers>(std::move(alone));
}

}  // namespace pc
