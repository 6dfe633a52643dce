#include "transport/shm/connection.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <string>

#include "kernels/copy.h"
#include "transport/budget.h"

namespace pc {
namespace {

// The size of the largest frame. A large message is divided into frames, so that the peer takes one
// while the next is written. An eager message must fit into one frame.
constexpr std::size_t kFrameBytes = kEagerBytes + kMaxDescriptionBytes;
// Up to this size the peer copies a frame while it is still being written. A longer frame is
// announced when it is complete: until then the peer is busy with the previous frame, and
// bytes_put, which the peer polls, is expensive to write.
constexpr std::size_t kBehind = kEagerBytes;
constexpr uint64_t kReportSeldom = 8;  // reports to the peer whenever 1/8 of a ring has been taken
// A message of this size or more is stored past the caches. Two arrays of this size, the sender's
// and the receiver's, do not stay in the caches, and such stores do not read the lines that they
// write.
constexpr uint64_t kPastCachesFrom = 8UL * 1024 * 1024;
constexpr std::size_t kFull = std::numeric_limits<std::size_t>::max();

bool is_large_message(const FrameHeader& header) {
  return header.type == FrameType::kData && header.id.stream.klass == StreamClass::kPointToPoint &&
         header.message_nbytes >= kPastCachesFrom && header.segment_nbytes != 0;
}

}  // namespace

ShmConnection::ShmConnection(LocalPeers& local_peers, ShmWakeup& wakeup, const SegmentHeader& header,
                             const Ends& ends, const LinkLimits& limits)
    : local_peers_(local_peers),
      wakeup_(wakeup),
      header_(header),
      ends_(ends),
      link_(ends.me, ends.peer, ends.epoch, limits),
      waiter_(ends.oversubscribed, Waiter::flags(), ends.core) {}

bool ShmConnection::unsent() const {
  return open_ && (link_.has_output() || link_.counts().posted_sends > 0);
}

Status ShmConnection::open() {
  if (own_ != nullptr) return Status::ok();
  PC_ASSIGN_OR_RETURN(const SharedRange range, local_peers_.grow(sizeof(Channel) + ends_.ring_nbytes));
  own_ = reinterpret_cast<Channel*>(range.memory.data());  // initially zeros
  ring_ = range.memory.subspan(sizeof(Channel), ends_.ring_nbytes);
  own_->ring_nbytes.store(ring_.size(), std::memory_order_relaxed);
  wakeup_.own_header().channels[ends_.peer_place].store(range.offset, std::memory_order_seq_cst);
  return Status::ok();
}

void ShmConnection::send_goodbye() {
  // without a channel of its own, this rank cannot send a goodbye here
  if (own_ != nullptr) link_.send_goodbye();
}

// ---- Writing.

std::size_t ShmConnection::write() {
  if (!open_ || !link_.has_output()) return 0;
  std::size_t frames = 0;
  for (std::size_t nbytes = 0; nbytes < kBudgetBytes; ++frames) {
    const Result<std::size_t> capacity = capacity_for_frame();
    if (!capacity.is_ok()) return broken(capacity.status()), frames + 1;
    if (capacity.value() == kFull) break;
    const std::optional<OutFrame> frame = link_.next_frame(capacity.value());
    if (!frame) break;
    put(frame->header, frame->payload, frame->description);
    link_.written();
    nbytes += frame->payload.size();
  }
  return frames;
}

// Returns the largest number of contiguous bytes that the next frame may have, or kFull if no slot
// is free.
Result<std::size_t> ShmConnection::capacity_for_frame() {
  PC_TRY(open());
  PC_TRY(find_theirs().status());
  const uint64_t slots =
      slots_ - (theirs_ == nullptr ? 0 : theirs_->slots_taken.load(std::memory_order_seq_cst));
  const uint64_t bytes =
      bytes_ - (theirs_ == nullptr ? 0 : theirs_->bytes_taken.load(std::memory_order_acquire));
  if (slots > kChannelSlots || bytes > ring_.size())
    return Status(Code::kPeerFailure, "it has taken more than there was");
  if (slots == kChannelSlots) return kFull;
  const std::size_t free = ring_.size() - bytes, to_end = ring_.size() - bytes_ % ring_.size();
  return std::min(kFrameBytes, std::max(std::min(free, to_end), free > to_end ? free - to_end : 0));
}

void ShmConnection::put(const FrameHeader& header, const ConstIoVec& payload,
                        std::span<const std::byte> description) {
  SlotWords words = words_of(header);
  const std::size_t nbytes = payload.size() + description.size();
  if (words.is_short != 0) {
    std::byte* to = words.data;
    payload.each([&](std::span<const std::byte> piece) { to = std::copy(piece.begin(), piece.end(), to); });
    std::copy(description.begin(), description.end(), to);
    announce(words, SlotWords::kHead + nbytes);
  } else if (payload.size() <= kPutAtOnce) {
    const uint64_t end = put_bytes(payload, description);
    if (nbytes != 0) bytes_ = end;
    announce(words, SlotWords::kExtentEnd);
  } else if (payload.size() <= kBehind) {
    announce(words, SlotWords::kExtentEnd);
    bytes_ = put_bytes(payload, description);
    own_->bytes_put.exchange(bytes_, std::memory_order_seq_cst);
  } else {
    bytes_ = put_bytes(payload, description);
    own_->bytes_put.store(bytes_, std::memory_order_release);
    announce(words, SlotWords::kExtentEnd);
  }
  wakeup_.wake(ends_.peer);
}

// The exchange is sequentially consistent, like the store in ShmWakeup::begin_sleep(). Either a
// peer that falls asleep still sees this frame, or this rank sees that the peer sleeps.
void ShmConnection::announce(const SlotWords& words, std::size_t nbytes) {
  ChannelSlot& slot = own_->slots[slots_ % kChannelSlots];
  std::memcpy(slot.bytes, &words, nbytes);
  slot.stamp.exchange(++slots_, std::memory_order_seq_cst);
}

// Writes a frame's bytes and publishes the progress meanwhile. Returns the position at which the
// bytes of the next frame may begin.
uint64_t ShmConnection::put_bytes(const ConstIoVec& payload, std::span<const std::byte> description) {
  const uint64_t nbytes = payload.size() + description.size();
  const uint64_t place = place_in_ring(bytes_, nbytes, ring_.size());
  std::byte* const begin = ring_.data() + place % ring_.size();
  std::byte* to = begin;
  payload.each([&](std::span<const std::byte> piece) {
    const uint64_t before = place + static_cast<uint64_t>(to - begin);
    const bool is_read_behind = payload.size() > kPutAtOnce && payload.size() <= kBehind;
    shared_copy_(to, piece.data(), piece.size(), is_read_behind ? kPutAtOnce : piece.size(),
                 [&](std::size_t done) {
                   if (is_read_behind) own_->bytes_put.store(before + done, std::memory_order_release);
                 });
    to += piece.size();
  });
  std::copy(description.begin(), description.end(), to);
  return end_in_ring(place, nbytes);
}

// ---- Reading.

std::size_t ShmConnection::read() {
  std::size_t frames = 0;
  for (std::size_t nbytes = 0; open_ && nbytes < kBudgetBytes; ++frames) {
    const Result<std::size_t> took = take();
    if (!took.is_ok()) return broken(took.status()), frames + 1;
    if (took.value() == 0) break;
    nbytes += took.value();
  }
  return frames;
}

Result<bool> ShmConnection::find_theirs() {
  if (theirs_ != nullptr) [[likely]]
    return true;
  const uint64_t offset = header_.channels[ends_.my_place].load(std::memory_order_seq_cst);
  if (offset == 0) return false;
  if (offset == SegmentHeader::kRefused)
    return Status(Code::kPeerFailure, "it had no memory for its side of the connection");
  PC_TRY(open());  // needed here, because this rank's channel reports what the rank has taken
  const auto hostile = [] { return Status(Code::kPeerFailure, "its shared memory has another layout"); };
  if (offset % alignof(Channel) != 0) return hostile();
  PC_ASSIGN_OR_RETURN(const std::span<std::byte> memory,
                      local_peers_.map(ends_.peer, offset, sizeof(Channel) + ends_.ring_nbytes));
  const Channel* const found = reinterpret_cast<const Channel*>(memory.data());
  if (found->ring_nbytes.load(std::memory_order_acquire) != ends_.ring_nbytes) return hostile();
  their_ring_ = memory.subspan(sizeof(Channel));
  theirs_ = found;
  return true;
}

// Takes one frame. Returns the number of its bytes, or 0 if none has arrived.
Result<std::size_t> ShmConnection::take() {
  PC_ASSIGN_OR_RETURN(const bool found, find_theirs());
  if (!found || !next().has_arrived()) return std::size_t{0};
  SlotWords words;
  PC_ASSIGN_OR_RETURN(const Arrived frame, look(words));
  const auto& [header, at, end] = frame;
  if (!is_whole(frame)) return std::size_t{0};
  PC_ASSIGN_OR_RETURN(const PayloadDestination to,
                      link_.header_arrived(header, {at + header.segment_nbytes, header.description_nbytes}));
  if (to.is_final && is_large_message(header)) {
    copy_past_caches(to.where.data(), at, header.segment_nbytes);
    PC_TRY(link_.payload_arrived());
  } else if (header.segment_nbytes != 0) {
    PC_TRY(link_.payload_arrived_at({at, header.segment_nbytes}));
  }
  taken(frame);
  return sizeof(ChannelSlot) + header.segment_nbytes;
}

ShmConnection::Next ShmConnection::next() {
  const bool found = theirs_ != nullptr && open_;
  return {found ? &theirs_->slots[slots_taken_ % kChannelSlots] : nullptr, slots_taken_ + 1};
}

Result<ShmConnection::Arrived> ShmConnection::look(SlotWords& words) const {
  copy_words(theirs_->slots[slots_taken_ % kChannelSlots], words);
  PC_ASSIGN_OR_RETURN(const FrameHeader header, header_of(words, ends_.epoch));
  const uint64_t nbytes = header.segment_nbytes + uint64_t{header.description_nbytes};
  if (words.is_short != 0 || nbytes == 0) return Arrived{header, words.data, bytes_taken_};
  if (nbytes > their_ring_.size())
    return Status(Code::kPeerFailure, "a frame is larger than the ring that it is in");
  const uint64_t place = place_in_ring(bytes_taken_, nbytes, their_ring_.size());
  return Arrived{header, their_ring_.data() + place % their_ring_.size(), end_in_ring(place, nbytes)};
}

bool ShmConnection::is_whole(const Arrived& frame) const {
  return frame.header.segment_nbytes <= kPutAtOnce ||
         static_cast<int64_t>(theirs_->bytes_put.load(std::memory_order_seq_cst) - frame.bytes_end) >= 0;
}

void ShmConnection::taken(const Arrived& frame) {
  ++slots_taken_;
  bytes_taken_ = frame.bytes_end;
  report_taken();
}

// Reports seldom: the peer reads these words before every frame that it writes, and each report
// takes their cache line from it. At most about an eighth of a ring is free without a report.
void ShmConnection::report_taken() {
  if (slots_taken_ - slots_reported_ < kChannelSlots / kReportSeldom &&
      bytes_taken_ - bytes_reported_ < ring_.size() / kReportSeldom)
    return;
  slots_reported_ = slots_taken_;
  bytes_reported_ = bytes_taken_;
  own_->bytes_taken.store(bytes_taken_, std::memory_order_release);
  own_->slots_taken.exchange(slots_taken_, std::memory_order_seq_cst);
  wakeup_.wake(ends_.peer);
}

// ---- The fast path.

bool ShmConnection::send_at_once(const SendOp& op) {
  if (!open_ || own_ == nullptr) return false;
  const uint64_t nbytes = op.payload.size();
  const Result<std::size_t> capacity = capacity_for_frame();
  if (!capacity.is_ok() || capacity.value() == kFull || nbytes + op.description.size() > capacity.value() ||
      !link_.send_at_once(op.id, nbytes, op.description.size()))
    return false;
  FrameHeader header;
  header.flags = kFlagEager;
  header.id = op.id;
  header.message_nbytes = nbytes;
  header.segment_nbytes = static_cast<uint32_t>(nbytes);
  header.description_nbytes = static_cast<uint32_t>(op.description.size());
  put(header, op.payload, op.description);
  return true;
}

bool ShmConnection::recv_at_once(const RecvOp& op) {
  const Next slot = next();
  if (slot.slot == nullptr || !slot.has_arrived()) return false;  // another thread has taken it
  SlotWords words;
  const Result<Arrived> looked = look(words);
  if (!looked.is_ok()) return false;  // the regular path reports this error
  const Arrived& frame = looked.value();
  if (!link_.can_receive_at_once(frame.header, op.id, op.nbytes) || !copy_behind(frame, op.payload.data()))
    return false;
  link_.received_at_once(frame.header);
  taken(frame);
  write();  // sends the credit
  return true;
}

// Copies while the peer may still be writing. Returns false if the peer makes no progress.
bool ShmConnection::copy_behind(const Arrived& frame, std::byte* to) const {
  const uint64_t nbytes = frame.header.segment_nbytes;
  if (nbytes <= kPutAtOnce) {
    if (nbytes != 0) std::memcpy(to, frame.at, nbytes);
    return true;
  }
  constexpr int kWaitLimit = 2000;  // consecutive polls without progress
  int steps = static_cast<int>(nbytes / kPutAtOnce) + 2;
  const uint64_t begin = frame.bytes_end - end_in_ring(0, nbytes + frame.header.description_nbytes);
  uint64_t done = 0;
  for (int looks = 0; done < nbytes && looks < kWaitLimit && steps > 0; ++looks) {
    const uint64_t put = theirs_->bytes_put.load(std::memory_order_acquire);
    const int64_t come = std::min(static_cast<int64_t>(put - begin), static_cast<int64_t>(nbytes));
    if (come <= static_cast<int64_t>(done)) {
      Waiter::pause();
      continue;
    }
    std::memcpy(to + done, frame.at + done, static_cast<uint64_t>(come) - done);
    done = static_cast<uint64_t>(come);
    looks = 0;
    --steps;
  }
  return done == nbytes;
}

// ---- The end.

void ShmConnection::end_as_peer_did(const Status& why) {
  while (open_ && read() > 0) {
  }
  if (!open_) return;
  close(link_.peer_sent_goodbye()
            ? Status(Code::kPeerExited, "rank " + std::to_string(ends_.peer) + " has shut down")
            : why);
}

void ShmConnection::broken(const Status& why) {
  if (own_ != nullptr) {
    own_->ended.exchange(1, std::memory_order_seq_cst);
  } else {
    wakeup_.own_header().channels[ends_.peer_place].store(SegmentHeader::kRefused, std::memory_order_seq_cst);
  }
  wakeup_.wake(ends_.peer);
  close(Status(why.code(), "connection to rank " + std::to_string(ends_.peer) +
                               " (shared memory) lost: " + why.message()));
}

void ShmConnection::close(const Status& why) {
  open_ = false;
  link_.fail(why.with_rank(ends_.me).with_peer(ends_.peer));
}

}  // namespace pc
