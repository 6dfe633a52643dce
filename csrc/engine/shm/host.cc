#include "engine/shm/host.h"

#include <unistd.h>

#include <string>

#include "transport/shm/process_memory.h"
#include "wire/credentials.h"

namespace pc::shm {
namespace {

Status hostile(Rank rank, const char* what) {
  return Status(Code::kMismatch, "rank " + std::to_string(rank) + "'s shared memory " + what +
                                     "; do all ranks run the same version?")
      .with_peer(rank);
}

}  // namespace

Result<std::unique_ptr<Host>> Host::create(Neighbours& neighbours, Doorbell& doorbell, bool single_copy) {
  std::unique_ptr<Host> host(new Host(neighbours, doorbell));
  if (single_copy) PC_TRY(host->offer_private_memory());
  return host;
}

Status Host::offer_private_memory() {
  PC_TRY(fill_randomly(std::as_writable_bytes(std::span(proof_))));
  FrontPage& page = doorbell_.own_page();
  for (const std::size_t i : {0U, 1U}) page.proof[i].store(proof_[i], std::memory_order_relaxed);
  page.proof_address.store(reinterpret_cast<uintptr_t>(proof_), std::memory_order_relaxed);
  page.pid.store(static_cast<uint64_t>(::getpid()), std::memory_order_release);
  return Status::ok();
}

// A pid may mean another process here (containers): what it has there proves that it is the one.
bool Host::can_read(Rank rank) {
  const Result<const FrontPage*> found = doorbell_.page_of(rank);
  if (!found.is_ok() || doorbell_.own_page().pid.load(std::memory_order_relaxed) == 0) return false;
  const FrontPage& page = *found.value();
  const pid_t pid = static_cast<pid_t>(page.pid.load(std::memory_order_acquire));
  if (pid == 0) return false;
  uint64_t there[2] = {};
  const Status read_there = read_process_memory(pid, page.proof_address.load(std::memory_order_relaxed),
                                                std::as_writable_bytes(std::span(there)));
  const bool is_right = read_there.is_ok() && there[0] == page.proof[0].load(std::memory_order_relaxed) &&
                        there[1] == page.proof[1].load(std::memory_order_relaxed);
  if (is_right) pids_[static_cast<std::size_t>(rank)].store(pid, std::memory_order_relaxed);
  return is_right;
}

Status Host::read(Rank rank, uint64_t address, std::span<std::byte> into) const {
  return read_process_memory(pids_[static_cast<std::size_t>(rank)].load(std::memory_order_relaxed), address,
                             into);
}

bool Host::can_be_read(const std::byte* array) {
  std::byte copy[1];
  return read_process_memory(::getpid(), reinterpret_cast<uintptr_t>(array), copy).is_ok();
}

Status Host::wake_first(Rank rank) {
  PC_TRY(doorbell_.page_of(rank).status());
  wake(rank);
  return Status::ok();
}

Result<GroupArea*> Host::make_area(uint32_t group) {
  const std::lock_guard lock(mutex_);
  if (groups_ == kMaxGroups) {
    return Status(Code::kUnsupported, "a rank can be in at most " + std::to_string(kMaxGroups) +
                                          " groups that share memory; make groups once and keep them, or use "
                                          "PYCOLLECTIVE_TRANSPORT=tcp");
  }
  PC_ASSIGN_OR_RETURN(const SharedRange range, neighbours_.grow(sizeof(GroupArea)));
  GroupArea* const area = reinterpret_cast<GroupArea*>(range.memory.data());  // likewise
  FrontPage::Group& entry = doorbell_.own_page().groups[groups_++];
  entry.offset.store(range.offset, std::memory_order_relaxed);
  entry.id.store(uint64_t{group} + 1, std::memory_order_seq_cst);
  return area;
}

Result<const GroupArea*> Host::find_area(Rank rank, uint32_t group, const std::atomic<uint64_t>*& changes) {
  PC_ASSIGN_OR_RETURN(const FrontPage* const page, doorbell_.page_of(rank));
  changes = &page->magic;
  if (page->magic.load(std::memory_order_seq_cst) == 0) return static_cast<const GroupArea*>(nullptr);
  for (const FrontPage::Group& entry : page->groups) {
    const uint64_t id = entry.id.load(std::memory_order_seq_cst);
    changes = &entry.id;
    if (id == 0) return static_cast<const GroupArea*>(nullptr);
    if (id != uint64_t{group} + 1) continue;
    const uint64_t offset = entry.offset.load(std::memory_order_relaxed);
    if (offset % alignof(GroupArea) != 0) return hostile(rank, "has a group at a place that cannot be");
    PC_ASSIGN_OR_RETURN(const std::span<std::byte> memory, neighbours_.map(rank, offset, sizeof(GroupArea)));
    return reinterpret_cast<const GroupArea*>(memory.data());
  }
  return hostile(rank, "has too many groups");
}

Result<std::span<std::byte>> Host::make_ring(GroupArea& area, std::size_t nbytes) {
  PC_ASSIGN_OR_RETURN(const SharedRange range, neighbours_.grow(nbytes));
  area.ring_nbytes.store(nbytes, std::memory_order_relaxed);
  area.ring_offset.store(range.offset, std::memory_order_release);
  return range.memory.first(nbytes);
}

Result<std::span<const std::byte>> Host::find_ring(Rank rank, const GroupArea& area) {
  const uint64_t offset = area.ring_offset.load(std::memory_order_acquire);
  const uint64_t nbytes = area.ring_nbytes.load(std::memory_order_relaxed);
  if (offset == 0) return hostile(rank, "has no ring, though a message is said to be there");
  PC_ASSIGN_OR_RETURN(const std::span<std::byte> memory, neighbours_.map(rank, offset, nbytes));
  return std::span<const std::byte>(memory);
}

Result<const std::byte*> Host::find_array(Rank rank, const HeapPlace& place, std::size_t nbytes) {
  const std::size_t piece = std::size_t{place.pages} * kPage;
  if (place.offset > piece || nbytes > piece - place.offset)
    return hostile(rank, "does not hold the array that is said to be there");
  PC_ASSIGN_OR_RETURN(const std::span<std::byte> memory,
                      neighbours_.map(rank, uint64_t{place.first_page} * kPage, piece));
  return static_cast<const std::byte*>(memory.data() + place.offset);
}

}  // namespace pc::shm
