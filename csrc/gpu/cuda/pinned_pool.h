// Reuses pinned host memory: pinning takes the driver milliseconds, and unpinning may stop the
// device.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "gpu/cuda/event.h"
#include "gpu/cuda/memory.h"

namespace pc::cuda {

// The sizes of blocks are powers of two. Blocks are kept until the pool and all of its leases are
// destroyed. Thread-safety: take() from any thread; a lease may be destroyed in any thread, also
// after the pool.
class PinnedPool {
  struct Block {
    PinnedMemory memory;
    std::optional<EventPool::Lease> busy;  // the GPU may use the block until this event is reached
  };
  struct FreeList {
    explicit FreeList(Context its) : context(std::move(its)) {}
    ~FreeList();  // leaks blocks that the GPU still uses
    bool is_free(const Block& block) const;
    const Context context;
    std::mutex mutex;
    std::vector<std::unique_ptr<Block>> blocks;  // guarded by mutex; ordered by size
  };

 public:
  class Lease {
   public:
    Lease(Lease&&) noexcept = default;
    Lease& operator=(Lease&&) = delete;
    ~Lease();
    // at least as many bytes as requested
    std::span<std::byte> bytes() const { return block_->memory.bytes(); }
    // Records that the GPU uses the block until `event` is reached. The lease may be destroyed
    // earlier.
    void busy_until(EventPool::Lease event) { block_->busy.emplace(std::move(event)); }
    bool is_free() const { return free_list_->is_free(*block_); }

   private:
    friend class PinnedPool;
    Lease(std::shared_ptr<FreeList> free_list, std::unique_ptr<Block> block)
        : free_list_(std::move(free_list)),
          block_(std::move(block)) {}
    std::shared_ptr<FreeList> free_list_;  // null: moved from
    std::unique_ptr<Block> block_;
  };

  explicit PinnedPool(Context context) : free_list_(std::make_shared<FreeList>(std::move(context))) {}
  Result<Lease> take(std::size_t nbytes);

 private:
  const std::shared_ptr<FreeList> free_list_;
};

}  // namespace pc::cuda
