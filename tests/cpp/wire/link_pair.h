// Two Links and the two queues of frames between them. The test calls each step (a frame is taken,
// written, delivered in whole or by half) or draws it from a seeded generator. Frames of one
// direction stay in order, as on a connection.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "wire/link.h"

namespace pc {

class Recorder final : public CompletionSink {
 public:
  void complete(Completion&& completion) override {
    const uint64_t token = completion.token;
    EXPECT_TRUE(done.emplace(token, std::move(completion)).second) << "token " << token << " completed twice";
  }
  bool has(uint64_t token) const { return done.count(token) != 0; }
  Code code(uint64_t token) const { return has(token) ? done.at(token).status.code() : Code::kInternal; }
  std::map<uint64_t, Completion> done;
};

// Copies the segments and checks the guarantees made to consumers.
class Consumer final : public SegmentSink {
 public:
  explicit Consumer(std::vector<std::byte>& to) : to_(to) {}
  void consume(uint64_t offset, std::span<const std::byte> data) override {
    ASSERT_EQ(offset, next_);
    ASSERT_EQ(offset % 64, 0u);
    ASSERT_FALSE(data.empty());
    ASSERT_LE(offset + data.size(), to_.size());
    std::memcpy(to_.data() + offset, data.data(), data.size());
    next_ += data.size();
  }

 private:
  std::vector<std::byte>& to_;
  uint64_t next_ = 0;
};

struct Frame {
  FrameHeader header;
  std::vector<std::byte> payload, description = {};
};

inline std::vector<std::byte> bytes_of(const ConstIoVec& payload) {
  std::vector<std::byte> bytes;
  payload.each(
      [&](std::span<const std::byte> piece) { bytes.insert(bytes.end(), piece.begin(), piece.end()); });
  return bytes;
}

// Returns the description of a message. Every message has one, and the lengths differ.
inline std::span<const std::byte> description_of(const MessageId& id) {
  static const std::vector<std::byte> kText(kMaxDescriptionBytes, std::byte{'d'});
  if (id.stream.klass != StreamClass::kPointToPoint) return {};
  return std::span(kText).first((id.sequence + 7 * id.stream.tag) % 40);
}

struct Side final : FrameIo {
  Side(Rank me, Rank peer, const LinkLimits& limits) : link(me, peer, 1, limits, this) {}
  void send(const MessageId& id, std::span<const std::byte> payload, uint64_t token = 0) {
    link.post_send({id, payload, &sends, token, description_of(id)});
  }
  void recv(const MessageId& id, std::span<std::byte> payload, uint64_t token = 0) {
    link.post_recv({id, payload, payload.size(), nullptr, &recvs, token});
  }
  void written() {
    const Unwritten& oldest = unwritten.front();
    EXPECT_TRUE(oldest.kept || bytes_of(oldest.from) == oldest.bytes)
        << "memory changed while it was being sent";
    unwritten.pop_front();
    link.written();
  }
  void keep_unsent() override {
    for (Unwritten& frame : unwritten) frame.kept = true;
  }
  void redirect(std::span<std::byte> there) override {
    EXPECT_EQ(there.size(), arriving.size());
    arriving = there;
  }

  struct Unwritten {
    ConstIoVec from;
    std::vector<std::byte> bytes;
    bool kept = false;
  };
  Link link;
  Recorder sends, recvs;
  std::size_t most_out = 1;         // the largest number of frames that may be taken and not yet written()
  std::deque<Unwritten> unwritten;  // these frames
  std::deque<Frame> wire;           // frames that this side has written
  std::optional<Frame> half;        // a frame of which half of the payload has arrived here
  std::span<std::byte> arriving;    // the memory for its payload
};

inline const Status kInterrupted(Code::kInterrupted, "Ctrl-C");  // the reason for a withdrawal

// Limits that a few messages reach.
inline constexpr LinkLimits kSmall = {
    .segment_bytes = 1024, .eager_bytes = 512, .credit_bytes = 8192, .max_requests = 8};

class LinkPair {
 public:
  explicit LinkPair(const LinkLimits& limits = {}) : a(0, 1, limits), b(1, 0, limits) {}

  // Puts the next frame on the wire. Returns false if there is nothing to write.
  static bool take(Side& from) {
    const auto write_until = [&](std::size_t left) {
      while (from.unwritten.size() > left) from.written();
    };
    write_until(from.most_out - 1);
    std::optional<OutFrame> out = from.link.next_frame();
    if (!out) {
      write_until(0);
      return false;
    }
    HeaderBytes bytes;
    encode(out->header, bytes);
    const Result<FrameHeader> header = decode(bytes);
    EXPECT_TRUE(header.is_ok()) << header.status().to_string();
    EXPECT_EQ(header.value().segment_nbytes, out->payload.size());
    EXPECT_EQ(header.value().description_nbytes, out->description.size());
    from.wire.push_back(
        {header.value(), bytes_of(out->payload), {out->description.begin(), out->description.end()}});
    from.unwritten.push_back({out->payload, from.wire.back().payload});
    return true;
  }
  // Delivers the oldest frame of `from`, or the rest of it, to `to`. `by_view`: like a frame I/O
  // that sees the peer's memory.
  static bool deliver(Side& from, Side& to, bool by_view = false) {
    if (to.half) {
      const std::vector<std::byte> payload = std::exchange(to.half, std::nullopt)->payload;
      const std::size_t done = payload.size() / 2;
      std::copy(payload.begin() + static_cast<std::ptrdiff_t>(done), payload.end(),
                to.arriving.subspan(done).begin());
      const Status status = to.link.payload_arrived();
      EXPECT_TRUE(status.is_ok()) << status.to_string();
      return true;
    }
    if (from.wire.empty()) return false;
    const Frame frame = std::move(from.wire.front());
    from.wire.pop_front();
    const Status status = arrive(to.link, frame, by_view);
    EXPECT_TRUE(status.is_ok()) << status.to_string();
    return true;
  }
  // Delivers the oldest frame's header and half of its payload.
  static bool deliver_half(Side& from, Side& to) {
    if (to.half || from.wire.empty() || from.wire.front().payload.empty()) return deliver(from, to);
    to.half = std::move(from.wire.front());
    from.wire.pop_front();
    const Result<PayloadDestination> destination =
        to.link.header_arrived(to.half->header, to.half->description);
    EXPECT_TRUE(destination.is_ok()) << destination.status().to_string();
    to.arriving = destination.value().where;
    std::copy_n(to.half->payload.begin(), to.half->payload.size() / 2, to.arriving.begin());
    return true;
  }
  static Status arrive(Link& link, const Frame& frame, bool by_view = false) {
    PC_ASSIGN_OR_RETURN(const PayloadDestination to, link.header_arrived(frame.header, frame.description));
    EXPECT_EQ(to.where.size(), frame.payload.size());
    if (frame.payload.empty()) return Status::ok();
    if (by_view) return link.payload_arrived_at(frame.payload);
    std::memcpy(to.where.data(), frame.payload.data(), frame.payload.size());
    return link.payload_arrived();
  }
  // Runs until neither side has anything to write.
  void settle() {
    for (bool moved = true; moved;) {
      moved = take(a) | take(b);
      moved |= deliver(a, b) | deliver(b, a, true);
    }
  }
  // Makes one step chosen by `random`. Returns false if that step was not possible.
  bool step(std::mt19937& random) { return step(static_cast<uint32_t>(random() % 4), random() % 2 == 0); }
  bool step(uint32_t which, bool by_view) {
    switch (which) {
      case 0: return take(a);
      case 1: return take(b);
      case 2: return deliver(a, b, by_view);
      case 3: return deliver(b, a, by_view);
      case 4: return deliver_half(a, b);
      default: return deliver_half(b, a);
    }
  }

  Side a, b;
};

// Checks that nothing is posted or kept, and that every byte of credit is accounted for.
inline void expect_at_rest(const LinkPair& pair, const LinkLimits& limits) {
  const Link::Counts a = pair.a.link.counts(), b = pair.b.link.counts();
  for (const Link::Counts& left : {a, b}) {
    EXPECT_EQ(left.posted_sends, 0u);
    EXPECT_EQ(left.posted_recvs, 0u);
    EXPECT_EQ(left.unexpected + left.unexpected_nbytes, 0u);
    EXPECT_EQ(left.requests, 0u);
    EXPECT_EQ(left.clears, 0u);
    EXPECT_EQ(left.withdrawn, 0u);
    EXPECT_EQ(left.unanswered, 0u);
    EXPECT_EQ(left.early_clears, 0u);
    EXPECT_EQ(left.charged, left.returnable);
  }
  EXPECT_EQ(a.credit + b.charged, limits.credit_bytes);
  EXPECT_EQ(b.credit + a.charged, limits.credit_bytes);
}

inline MessageId p2p(uint32_t tag, uint64_t sequence = 0, uint64_t digest = 1) {
  return {{0, StreamClass::kPointToPoint, tag}, sequence, 0, digest};
}

inline MessageId collective(uint64_t sequence, uint32_t index = 0, uint32_t group = 0) {
  return {{group, StreamClass::kCollective, 0}, sequence, index, 1};
}

inline std::vector<std::byte> bytes(std::size_t nbytes, uint32_t seed = 1) {
  std::vector<std::byte> data(nbytes);
  std::mt19937 random(seed);
  std::size_t i = 0;
  for (; i + 4 <= nbytes; i += 4) {
    const uint32_t word = static_cast<uint32_t>(random());
    std::memcpy(data.data() + i, &word, 4);
  }
  for (; i < nbytes; ++i) data[i] = static_cast<std::byte>(random() & 0xff);
  return data;
}

}  // namespace pc
