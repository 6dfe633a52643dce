// What a user of a transport posts (a send, a receive) and gets back (a completion).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "base/io_vec.h"
#include "base/status.h"
#include "wire/frame.h"

namespace pc {

// The token of a completion that ends no operation: `found` names a message of an earlier collective that no call here
// received; the status says so in words.
inline constexpr uint64_t kLateMismatchToken = ~uint64_t{0} - 1;

struct Completion {
  uint64_t token = 0;
  Status status;  // kMismatch: `found` says what the peer sent instead
  MessageId found;
  uint64_t nbytes = 0;
};

// Where completions go. Implementations are thread-safe: the thread that polls is not always the one that posted.
class CompletionSink {
 public:
  virtual void complete(
      Completion&& completion) = 0;  // called with the transport's lock held: be short, post nothing

 protected:
  ~CompletionSink() = default;
};

// Tells `sink`, which may be null, how an operation has ended.
inline void complete(CompletionSink* sink, uint64_t token, Status status, const MessageId& found = {},
                     uint64_t nbytes = 0) {
  if (sink != nullptr) sink->complete(Completion{token, std::move(status), found, nbytes});
}

// Consumes verified pieces of a message instead of having them stored: how a reduction overlaps the wire. They come in
// order, where a message is split over several connections those of each part. `data` is only valid during the call. Pieces start at multiples of 64 bytes. Called with the transport's lock held.
class SegmentSink {
 public:
  virtual void consume(uint64_t offset, std::span<const std::byte> data) = 0;

 protected:
  ~SegmentSink() = default;
};

struct SendOp {
  MessageId id;
  ConstIoVec payload;                     // busy until completed
  CompletionSink* completions = nullptr;  // outlives the operation
  uint64_t token = 0;
  // Busy likewise; for a ProbeOp of the receiver. Point-to-point, at most kMaxDescriptionBytes.
  std::span<const std::byte> description = {};
  // `payload` is so much of the message from here on; the rest goes over other links. 0: it is the message.
  uint64_t message_nbytes = 0, offset = 0;
};
struct RecvOp {
  MessageId id;  // matched by stream, sequence and index; another digest or size is a mismatch
  std::span<std::byte> payload;  // destination; busy until completed. Empty if `consumer` is set
  uint64_t nbytes = 0;           // the message must have exactly this size
  SegmentSink* consumer = nullptr;
  CompletionSink* completions = nullptr;
  uint64_t token = 0;
  // So much of the message is to come, from here on, and goes to the begin of `payload`. 0: all of it.
  uint64_t part_nbytes = 0, offset = 0;
};

// Completes when a point-to-point message of that name can be received, with its digest and size; takes nothing.
struct ProbeOp {
  MessageId id;  // the digest does not matter
  CompletionSink* completions = nullptr;
  uint64_t token = 0;
  std::string* description = nullptr;  // gets the sender's; outlives the operation
};

}  // namespace pc
