#include "shm/local_peers_thread.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <string>
#include <vector>

#include "base/round_up.h"
#include "shm/event_fd.h"

namespace pc {
namespace {

// The address space reserved for one rank, so that its pieces are adjacent.
constexpr std::size_t kMost = std::size_t{1} << 30;

class ThreadHostImpl final : public ThreadHost, public std::enable_shared_from_this<ThreadHostImpl> {
 public:
  ThreadHostImpl() = default;
  ThreadHostImpl(const ThreadHostImpl&) = delete;
  ThreadHostImpl& operator=(const ThreadHostImpl&) = delete;
  ~ThreadHostImpl() override {
    for (const auto& place : places_) ::munmap(place->base, kMost);
  }
  Status add_place() {
    PC_ASSIGN_OR_RETURN(EventFd notifier, EventFd::create());
    void* const at = ::mmap(nullptr, kMost, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return system_error("mmap of addresses for a rank's memory", errno);
    places_.push_back(std::make_unique<Place>(static_cast<std::byte*>(at), std::move(notifier)));
    return Status::ok();
  }
  std::unique_ptr<LocalPeers> local_peers_of(Rank rank) override;

  void cut(const std::vector<Rank>& domains) {
    std::size_t first = 0;
    for (std::size_t i = 0; i < domains.size(); ++i) {
      const std::size_t end = first + static_cast<std::size_t>(domains[i]);
      for (; first < end && first < places_.size(); ++first) places_[first]->domain = i;
    }
  }
  bool has(Rank rank) const { return rank >= 0 && static_cast<std::size_t>(rank) < places_.size(); }
  bool share(Rank a, Rank b) const {
    return has(a) && has(b) &&
           places_[static_cast<std::size_t>(a)]->domain == places_[static_cast<std::size_t>(b)]->domain;
  }
  Result<SharedRange> grow(Rank rank, std::size_t nbytes);
  Result<std::span<std::byte>> map(Rank rank, uint64_t offset, std::size_t nbytes);
  EventFd& notifier(Rank rank) { return places_[static_cast<std::size_t>(rank)]->notifier; }

 private:
  struct Place {
    Place(std::byte* at, EventFd given) : base(at), notifier(std::move(given)) {}
    std::byte* const base;
    EventFd notifier;
    std::size_t domain = 0;
    std::mutex mutex;
    std::size_t nbytes = 0;  // guarded by mutex
  };
  std::vector<std::unique_ptr<Place>> places_;  // by rank
};

Result<SharedRange> ThreadHostImpl::grow(Rank rank, std::size_t nbytes) {
  Place& place = *places_[static_cast<std::size_t>(rank)];
  const std::lock_guard lock(place.mutex);
  if (nbytes == 0) return Status(Code::kInternal, "shared memory of 0 bytes was asked for");
  if (nbytes > kMost - place.nbytes)
    return Status(Code::kSystem, "a rank that is a thread has at most 1 GiB of shared memory");
  const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  nbytes = round_up(nbytes, page);
  std::byte* const at = place.base + place.nbytes;
  if (::mprotect(at, nbytes, PROT_READ | PROT_WRITE) != 0)
    return system_error("mprotect of a rank's memory", errno);
  const SharedRange range{place.nbytes, {at, nbytes}};
  place.nbytes += nbytes;
  return range;
}

Result<std::span<std::byte>> ThreadHostImpl::map(Rank rank, uint64_t offset, std::size_t nbytes) {
  Place& place = *places_[static_cast<std::size_t>(rank)];
  const std::lock_guard lock(place.mutex);
  if (nbytes == 0 || offset > place.nbytes || nbytes > place.nbytes - offset) {
    return Status(Code::kMismatch, std::to_string(nbytes) + " bytes at " + std::to_string(offset) +
                                       " do not lie inside the " + std::to_string(place.nbytes) +
                                       " that rank " + std::to_string(rank) + " shares")
        .with_peer(rank);
  }
  return std::span<std::byte>(place.base + offset, nbytes);
}

class ThreadLocalPeers final : public LocalPeers {
 public:
  ThreadLocalPeers(std::shared_ptr<ThreadHostImpl> host, Rank self) : host_(std::move(host)), self_(self) {}
  bool has(Rank rank) const override { return host_->share(self_, rank); }
  Result<SharedRange> grow(std::size_t nbytes) override { return host_->grow(self_, nbytes); }
  Result<std::span<std::byte>> map(Rank rank, uint64_t offset, std::size_t nbytes) override {
    if (!has(rank)) return Status(Code::kInternal, "rank " + std::to_string(rank) + " shares no memory");
    return host_->map(rank, offset, nbytes);
  }
  void notify(Rank rank) noexcept override { host_->notifier(rank).notify(); }
  int notify_fd() const override { return host_->notifier(self_).fd(); }
  bool clear_notification() noexcept override { return host_->notifier(self_).clear_notification(); }
  void close_in_child() noexcept override { host_->notifier(self_).close_in_child(); }

 private:
  const std::shared_ptr<ThreadHostImpl> host_;
  const Rank self_;
};

std::unique_ptr<LocalPeers> ThreadHostImpl::local_peers_of(Rank rank) {
  return std::make_unique<ThreadLocalPeers>(shared_from_this(), rank);
}

}  // namespace

Result<std::shared_ptr<ThreadHost>> ThreadHost::create(Rank size, const std::vector<Rank>& domains) {
  auto host = std::make_shared<ThreadHostImpl>();
  for (Rank rank = 0; rank < size; ++rank) {
    PC_TRY(host->add_place());
    PC_TRY(host->grow(rank, LocalPeers::kFirstNbytes).status());
  }
  host->cut(domains);
  return std::shared_ptr<ThreadHost>(std::move(host));
}

}  // namespace pc
