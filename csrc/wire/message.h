// The operations that a user of a transport posts (a send, a receive, a probe), and the completion
// with which each of them ends.
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

// The token of a completion that ends no operation. It reports that no call here received the
// message `found` of an earlier collective; the status explains this.
inline constexpr uint64_t kLateMismatchToken = ~uint64_t{0} - 1;

struct Completion {
  uint64_t token = 0;
  Status status;  // kMismatch: `found` names what the peer sent instead
  MessageId found;
  uint64_t nbytes = 0;
};

// The destination of completions. Implementations are thread-safe, because an operation may
// complete on another thread than the one that posted it.
class CompletionSink {
 public:
  virtual void complete(
      Completion&& completion) = 0;  // called with the transport's lock held: be short, post nothing

 protected:
  ~CompletionSink() = default;
};

// Reports to `sink`, which may be null, how an operation has ended.
inline void complete(CompletionSink* sink, uint64_t token, Status status, const MessageId& found = {},
                     uint64_t nbytes = 0) {
  if (sink != nullptr) sink->complete(Completion{token, std::move(status), found, nbytes});
}

// Consumes verified pieces of a message instead of having them stored, so that a reduction overlaps
// the transfer. Pieces start at multiples of 64 bytes and arrive in order. If a message is split
// over several connections, only the pieces of each part arrive in order. `data` is only valid
// during the call. Called with the transport's lock held.
class SegmentSink {
 public:
  virtual void consume(uint64_t offset, std::span<const std::byte> data) = 0;

 protected:
  ~SegmentSink() = default;
};

struct SendOp {
  MessageId id;
  ConstIoVec payload;                     // in use until completed
  CompletionSink* completions = nullptr;  // must outlive the operation
  uint64_t token = 0;
  // Reported to a ProbeOp of the receiver; in use until completed. Point-to-point only, at most
  // kMaxDescriptionBytes.
  std::span<const std::byte> description = {};
  // `payload` is the part of the message that begins at `offset`; other links carry the rest. If
  // message_nbytes is 0, `payload` is the whole message.
  uint64_t message_nbytes = 0, offset = 0;
};
struct RecvOp {
  MessageId id;  // matched by stream, sequence and index; another digest or size is a mismatch
  std::span<std::byte> payload;  // destination; in use until completed. Empty if `consumer` is set
  uint64_t nbytes = 0;           // the message must have exactly this size
  SegmentSink* consumer = nullptr;
  CompletionSink* completions = nullptr;
  uint64_t token = 0;
  // The part to be received begins at `offset` in the message, and is stored at the beginning of
  // `payload`. If part_nbytes is 0, the part is the whole message.
  uint64_t part_nbytes = 0, offset = 0;
};

// Completes when a point-to-point message with this id can be received, and reports its digest and
// size. Does not consume the message.
struct ProbeOp {
  MessageId id;  // its digest is ignored
  CompletionSink* completions = nullptr;
  uint64_t token = 0;
  std::string* description = nullptr;  // receives the sender's description; must outlive the operation
};

}  // namespace pc
