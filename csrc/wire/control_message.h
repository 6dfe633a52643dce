// One message between two control planes and its encoding: a frame header and at most 4 KiB of
// payload.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "wire/frame.h"

namespace pc {

inline constexpr std::size_t kMaxControlPayload = 4096;

struct CallId {  // names a collective of a group, or an inquiry about something else
  uint32_t group = 0;
  uint64_t sequence = 0;
  auto operator<=>(const CallId&) const = default;

  // sequence of an inquiry about whether the member is in shutdown()
  static constexpr uint64_t kPresence = 0;
  // Names an inquiry about what `asked` is doing. Both ranks are world ranks.
  static CallId position_query(uint32_t group, Rank asker, Rank asked) {
    return {group, kNoCall | uint64_t{static_cast<uint32_t>(asker)} << 32 | static_cast<uint32_t>(asked)};
  }
  bool is_call() const { return sequence != kPresence && sequence < kNoCall; }
  bool is_position_query() const { return sequence >= kNoCall; }
  Rank asker() const { return static_cast<Rank>((sequence & ~kNoCall) >> 32); }
  Rank asked() const { return static_cast<Rank>(sequence & 0xffffffff); }

 private:
  static constexpr uint64_t kNoCall = uint64_t{1} << 63;
};

// The state of one call on one rank, as reported to the other ranks.
struct CallReport {
  enum class State : uint8_t {
    kUnknown,  // the rank has not answered
    kNotMade,  // the rank has not entered this call yet
    kRunning,
    kDone,
    kGivenUp,
    kLeaving,  // the rank is in shutdown() instead of this call
  };
  State state = State::kUnknown;
  uint64_t digest = 0;     // of the call that the rank made; 0: none, or not compared
  uint64_t last_done = 0;  // number of the rank's last completed call in this group; 0: none
  // The call that the rank made, as lines of "name=value", for error texts and for finding how two
  // calls differ
  std::string call = {};
  std::string site = {};       // the line that made the call: "train.py:42 in step"
  std::string last_call = {};  // the call that the rank completed last, for error texts
  std::string where = {};      // kNotMade: the position of the rank's program: "load.py:7 in read"
  bool where_follows = false;  // `where` is being determined and follows in a second report
  bool made() const { return state >= State::kRunning; }
};

// Why a call ended on all ranks.
struct CallEnd {
  Code code = Code::kAborted;  // kMismatch, kTimeout, kInterrupted, kPeerExited, kAborted or kSystem
  Rank by = -1;                // the world rank that gave the call up first
  std::string text = {};       // that rank's explanation
};

struct ControlMessage {
  FrameType type = FrameType::kPing;  // kNotice, kDead, kCancel, kPing or kGoodbye
  uint32_t epoch = 0;
  CallId call;              // for kNotice and kCancel
  bool asks = false;        // the receiver must answer a kNotice with its report, a kPing with a kPing
  bool asks_where = false;  // kNotice: the receiver must also determine the position of its program
  CallEnd end;              // for kCancel; for kDead `by` is the dead rank and `text` the cause
  CallReport report;        // for kNotice and kCancel: the sender's report
};

// Appends the encoded message to `out`. Cuts texts that are too long for the payload.
void encode(const ControlMessage& message, std::vector<std::byte>& out);

// Splits a stream of bytes into messages. Thread-safety: none.
class ControlReader {
 public:
  // Consumes all of `bytes`. Call next() until it returns nullopt before feeding more. An error
  // (hostile or damaged input) is final: close the connection.
  Status feed(std::span<const std::byte> bytes);
  std::optional<ControlMessage> next();

 private:
  std::vector<std::byte> buffer_;  // at most one message and the bytes that arrived with it
  std::vector<ControlMessage> ready_;
  std::size_t taken_ = 0;
  Status failed_;
};

}  // namespace pc
