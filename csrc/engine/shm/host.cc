#include "engine/shm/host.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>

#include "shm/process_memory.h"
#include "wire/credentials.h"

namespace pc::shm {
namespace {

Status hostile(Rank rank, const char* what) {
  return Status(Code::kMismatch, "rank " + std::to_string(rank) + "'s shared memory " + what +
                                     "; do all ranks run the same version?")
      .with_peer(rank);
}

}  // namespace

Result<std::unique_ptr<Host>> Host::create(LocalPeers& local_peers, ShmWakeup& wakeup, bool single_copy) {
  std::unique_ptr<Host> host(new Host(local_peers, wakeup));
  if (single_copy) PC_TRY(host->offer_private_memory());
  return host;
}

Status Host::offer_private_memory() {
  PC_TRY(fill_randomly(std::as_writable_bytes(std::span(proof_))));
  SegmentHeader& header = wakeup_.own_header();
  for (const std::size_t i : {0U, 1U}) header.proof[i].store(proof_[i], std::memory_order_relaxed);
  header.proof_address.store(reinterpret_cast<uintptr_t>(proof_), std::memory_order_relaxed);
  header.pid.store(static_cast<uint64_t>(::getpid()), std::memory_order_release);
  return Status::ok();
}

// If a peer is in another container, its pid may name another process here. The random values in
// the peer's memory prove that the process is the right one.
bool Host::can_read(Rank rank) {
  const Result<const SegmentHeader*> found = wakeup_.header_of_rank(rank);
  if (!found.is_ok() || wakeup_.own_header().pid.load(std::memory_order_relaxed) == 0) return false;
  const SegmentHeader& header = *found.value();
  const pid_t pid = static_cast<pid_t>(header.pid.load(std::memory_order_acquire));
  if (pid == 0) return false;
  uint64_t there[2] = {};
  const Status read_there = read_process_memory(pid, header.proof_address.load(std::memory_order_relaxed),
                                                std::as_writable_bytes(std::span(there)));
  const bool is_right = read_there.is_ok() && there[0] == header.proof[0].load(std::memory_order_relaxed) &&
                        there[1] == header.proof[1].load(std::memory_order_relaxed);
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
  PC_TRY(wakeup_.header_of_rank(rank).status());
  wake(rank);
  return Status::ok();
}

// A member makes its entry before it looks for this rank's entry, and this rank closes its entry
// before it checks here. So if a member has found this rank's entry open, the check finds the
// member's entry.
bool Host::has_open_entry(const Member& member, uint64_t id) {
  if (member.found.area != nullptr)
    return member.found.word->load(std::memory_order_seq_cst) == member.found.seen;
  const Result<const SegmentHeader*> header = wakeup_.header_of_rank(member.world);
  if (!header.is_ok()) return true;
  return std::any_of(std::begin(header.value()->groups), std::end(header.value()->groups),
                     [&](const auto& entry) { return entry.id.load(std::memory_order_seq_cst) == id; });
}

bool Host::is_free(const OwnArea& area) {
  return area.is_closed && std::none_of(area.members.begin(), area.members.end(), [&](const Member& member) {
           return has_open_entry(member, area.id);
         });
}

Host::OwnArea& Host::own(const GroupArea& area) {
  return *std::find_if(areas_.begin(), areas_.end(), [&](const OwnArea& each) { return each.area == &area; });
}

// If a member's area was not found, the member may still join, and should then find out that this
// rank has closed the group. So the area of such a group is reused only when there are many areas.
std::optional<std::size_t> Host::free_area() {
  const bool are_few = areas_.size() < kMaxGroups / 2;
  const auto was_found = [](const Member& member) { return member.found.area != nullptr; };
  for (std::size_t i = 0; i < areas_.size(); ++i) {
    const std::vector<Member>& members = areas_[i].members;
    if (are_few && !std::all_of(members.begin(), members.end(), was_found)) continue;
    if (is_free(areas_[i])) return i;
  }
  return std::nullopt;
}

// Returns the index of an area that no group uses: the area of a group that its members have
// closed, or a new area.
Result<std::size_t> Host::take_area() {
  if (const std::optional<std::size_t> free = free_area()) {
    areas_[*free].is_closed = false;
    std::construct_at(areas_[*free].area);
    return *free;
  }
  if (areas_.size() == kMaxGroups) {
    return Status(Code::kUnsupported,
                  "a rank can be in at most " + std::to_string(kMaxGroups) +
                      " groups at the same time that share memory; close those that are not "
                      "needed, or use PYCOLLECTIVE_TRANSPORT=tcp");
  }
  PC_ASSIGN_OR_RETURN(const SharedRange range, local_peers_.grow(sizeof(GroupArea)));
  wakeup_.own_header().groups[areas_.size()].offset.store(range.offset, std::memory_order_relaxed);
  areas_.push_back({reinterpret_cast<GroupArea*>(range.memory.data())});  // its initial value is all zeros
  return areas_.size() - 1;
}

Result<GroupArea*> Host::make_area(uint32_t group) {
  const std::lock_guard lock(mutex_);
  PC_ASSIGN_OR_RETURN(const std::size_t index, take_area());
  SegmentHeader& header = wakeup_.own_header();
  header.groups[index].id.store(uint64_t{group} + 1, std::memory_order_seq_cst);
  header.groups_made.fetch_add(1, std::memory_order_seq_cst);
  return areas_[index].area;
}

Result<Host::FoundArea> Host::find_area(Rank rank, uint32_t group) {
  PC_ASSIGN_OR_RETURN(const SegmentHeader* const header, wakeup_.header_of_rank(rank));
  if (header->magic.load(std::memory_order_seq_cst) == 0) return FoundArea{nullptr, &header->magic, 0};
  const uint64_t made = header->groups_made.load(std::memory_order_seq_cst), wanted = uint64_t{group} + 1;
  for (const SegmentHeader::Group& entry : header->groups) {
    const uint64_t id = entry.id.load(std::memory_order_seq_cst);
    if (id == 0) break;
    if (id == (wanted | SegmentHeader::Group::kClosed)) return FoundArea{.is_closed = true};
    if (id != wanted) continue;
    const uint64_t offset = entry.offset.load(std::memory_order_relaxed);
    if (offset % alignof(GroupArea) != 0) return hostile(rank, "has a group at a place that cannot be");
    PC_ASSIGN_OR_RETURN(const std::span<std::byte> memory, local_peers_.map(rank, offset, sizeof(GroupArea)));
    return FoundArea{reinterpret_cast<const GroupArea*>(memory.data()), &entry.id, wanted};
  }
  return FoundArea{nullptr, &header->groups_made, made};
}

void Host::close_area(const GroupArea& area, std::vector<Member> members) {
  const std::lock_guard lock(mutex_);
  OwnArea& closed = own(area);
  closed.is_closed = true;
  closed.members = std::move(members);
  SegmentHeader::Group& entry = wakeup_.own_header().groups[&closed - areas_.data()];
  closed.id = entry.id.fetch_or(SegmentHeader::Group::kClosed, std::memory_order_seq_cst);
}

Result<std::span<std::byte>> Host::make_ring(GroupArea& area, std::size_t nbytes) {
  const std::lock_guard lock(mutex_);
  SharedRange& ring = own(area).ring;
  if (ring.memory.size() < nbytes) {
    PC_ASSIGN_OR_RETURN(ring, local_peers_.grow(nbytes));
  }
  area.ring_nbytes.store(nbytes, std::memory_order_relaxed);
  area.ring_offset.store(ring.offset, std::memory_order_release);
  return ring.memory.first(nbytes);
}

Result<std::span<const std::byte>> Host::find_ring(Rank rank, const GroupArea& area) {
  const uint64_t offset = area.ring_offset.load(std::memory_order_acquire);
  const uint64_t nbytes = area.ring_nbytes.load(std::memory_order_relaxed);
  if (offset == 0) return hostile(rank, "has no ring, though a message is said to be there");
  PC_ASSIGN_OR_RETURN(const std::span<std::byte> memory, local_peers_.map(rank, offset, nbytes));
  return std::span<const std::byte>(memory);
}

Result<const std::byte*> Host::find_array(Rank rank, const HeapPlace& place, std::size_t nbytes) {
  const std::size_t piece = std::size_t{place.pages} * kPage;
  if (place.offset > piece || nbytes > piece - place.offset)
    return hostile(rank, "does not hold the array that is said to be there");
  PC_ASSIGN_OR_RETURN(const std::span<std::byte> memory,
                      local_peers_.map(rank, uint64_t{place.first_page} * kPage, piece));
  return static_cast<const std::byte*>(memory.data() + place.offset);
}

}  // namespace pc::shm
