#include "gpu/cuda/pinned_pool.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace pc::cuda {
namespace {

constexpr std::size_t kSmallest = 4096;

std::size_t size_of_block(std::size_t nbytes) { return std::bit_ceil(std::max(nbytes, kSmallest)); }

}  // namespace

// If the event of a block cannot be queried, the GPU has failed and does no more work, so the block
// is free.
bool PinnedPool::FreeList::is_free(const Block& block) const {
  if (!block.busy) return true;
  const Result<ContextGuard> current = context.enter();
  if (!current.is_ok()) return true;
  const Result<bool> reached = is_reached(context.driver(), block.busy->get());
  return !reached.is_ok() || reached.value();
}

PinnedPool::FreeList::~FreeList() {
  for (const std::unique_ptr<Block>& block : blocks) {
    if (!is_free(*block)) static_cast<void>(new PinnedMemory(std::move(block->memory)));
  }
}

PinnedPool::Lease::~Lease() {
  if (free_list_ == nullptr) return;
  const std::lock_guard lock(free_list_->mutex);
  const auto smaller = [](const std::unique_ptr<Block>& a, const std::unique_ptr<Block>& b) {
    return a->memory.bytes().size() < b->memory.bytes().size();
  };
  std::vector<std::unique_ptr<Block>>& blocks = free_list_->blocks;
  blocks.insert(std::upper_bound(blocks.begin(), blocks.end(), block_, smaller), std::move(block_));
}

Result<PinnedPool::Lease> PinnedPool::take(std::size_t nbytes) {
  const std::size_t size = size_of_block(nbytes);
  {
    const std::lock_guard lock(free_list_->mutex);
    std::vector<std::unique_ptr<Block>>& blocks = free_list_->blocks;
    const auto found = std::find_if(blocks.begin(), blocks.end(), [&](const std::unique_ptr<Block>& block) {
      return block->memory.bytes().size() >= size && free_list_->is_free(*block);
    });
    if (found != blocks.end()) {
      std::unique_ptr<Block> block = std::move(*found);
      blocks.erase(found);
      block->busy.reset();
      return Lease(free_list_, std::move(block));
    }
  }
  PC_ASSIGN_OR_RETURN(PinnedMemory memory, PinnedMemory::allocate(free_list_->context, size));
  return Lease(free_list_, std::unique_ptr<Block>(new Block{std::move(memory), std::nullopt}));
}

}  // namespace pc::cuda
