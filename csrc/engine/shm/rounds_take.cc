// Copies the data for this rank from the ring or the array of another rank into the output, one
// round at a time.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "engine/shm/rounds.h"

namespace pc::shm {
namespace {

constexpr std::size_t kCopiedAtOnce = 1024UL * 1024;  // in one system call

// Copies from the writer's private memory through the kernel. Each copy costs a system call, so one
// copy takes the data of several rounds.
bool take_by_single_copy(Rounds& rounds, Rank writer) {
  Exchange& exchange = rounds.exchange;
  Group& group = rounds.group;
  Rounds::Incoming& from = rounds.from(writer);
  const std::size_t chunk = rounds.traffic.chunk_nbytes(), offset = rounds.offset(from.taken.next);
  const uint32_t most = static_cast<uint32_t>(std::max<std::size_t>(kCopiedAtOnce / chunk, 1));
  const uint32_t count = std::min(from.taken.count - from.taken.next, most);
  const Traffic::Span all = rounds.traffic.incoming(writer);
  uint64_t address = from.private_address + offset;
  const Status read = exchange.arrays.fill(
      all.begin + offset, std::min(count * chunk, all.nbytes - offset), [&](std::span<std::byte> piece) {
        const uint64_t begin = std::exchange(address, address + piece.size());
        return group.read(writer, begin, piece);
      });
  if (read.code() == Code::kPeerFailure) return group.await_change(writer);  // the writer's process has ended
  // the writer has given the call up, so its array may have been freed
  if (!read.is_ok() && !group.stays_exposed(writer)) return false;
  if (!read.is_ok()) {
    return exchange.fail(Status(Code::kSystem, read.message() + "; PYCOLLECTIVE_SINGLE_COPY=off does without")
                             .with_peer(writer));
  }
  from.taken.next += count;
  return true;
}

// Returns whether the announced size of a part is the size that this rank expects. Only the sender
// and the receiver know it.
bool has_size(Exchange& exchange, Rank writer, const std::byte* announced) {
  uint64_t there = 0;
  std::memcpy(&there, announced, sizeof there);
  const std::size_t here = exchange.traffic.incoming(writer).nbytes;
  if (there == here) return true;
  return exchange.fail(Status(Code::kMismatch, "another size is expected from rank " +
                                                   std::to_string(writer) + ": here " + std::to_string(here) +
                                                   " bytes, there " + std::to_string(there) + " bytes")
                           .with_peer(writer));
}

}  // namespace

bool take(Rounds& rounds, StreamKind kind, Rank writer) {
  const Traffic& traffic = rounds.traffic;
  Rounds::Incoming& from = rounds.from(writer);
  if (from.taken.is_done()) return false;
  if (from.private_address != 0) return take_by_single_copy(rounds, writer);
  const uint32_t round = from.taken.next;
  const Traffic::Span part =
      rounds.part(kind == kResults ? traffic.piece(writer) : traffic.incoming(writer), round);
  const bool is_own_part = kind == kInputs && traffic.is_addressed();
  const std::size_t number = is_own_part ? part_number(writer, rounds.launch.rank) : 0;
  const std::size_t sizes = is_own_part && round == 0 ? traffic.sizes_nbytes() : 0;
  const std::size_t begin = sizes + traffic.chunk_nbytes() * number;
  const std::byte* const message = rounds.message(writer, kind, round, begin, part.nbytes);
  if (message == nullptr) return false;
  if (sizes != 0 && !has_size(rounds.exchange, writer, message - begin + number * sizeof(uint64_t)))
    return false;
  rounds.take_message(writer, round, part, message);
  ++from.taken.next;
  return true;
}

}  // namespace pc::shm
