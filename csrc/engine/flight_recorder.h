// Always records the last calls of a rank. The rank reports them when a call fails or hangs.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "plan/plan.h"

namespace pc {

struct CallRecord {
  enum class Kind : uint8_t { kNone, kCollective, kConfirmation, kShutdown, kSend, kRecv, kProbe };
  enum class State : uint8_t { kRunning, kDone, kFailed };
  Kind kind = Kind::kNone;
  Collective collective = Collective::kBarrier;
  DType dtype = DType::kU8;
  ReduceOp op = ReduceOp::kSum;
  State state = State::kRunning;
  Code result = Code::kOk;
  Rank root_or_peer = -1;
  uint32_t group = 0, tag = 0;
  uint64_t sequence = 0, digest = 0, count = 0;
  uint64_t parts = 0;                  // hash of the part sizes if they differ; 0: the parts are equal
  uint64_t bundle = 0;                 // Request::bundle
  const Layout* layout = nullptr;      // Buffer::layout
  double factor = 1;                   // Reduction::factor
  const char* algorithm = nullptr;     // lives as long as the recorder; may be null
  const char* shape = nullptr;         // Request::shape
  const char* site = nullptr;          // "train.py:42 in step", lives as long as the process; null: unknown
  int64_t began_ns = 0, ended_ns = 0;  // steady clock; ended_ns is 0 until the call has ended
};

// Thread-safety: all methods. begin() and end() never wait, allocate or lock; readers retry while
// an entry is written.
class FlightRecorder {
 public:
  static constexpr std::size_t kCalls = 1024;

  uint64_t begin(const CallRecord& call);  // returns the ticket for end()
  // Has no effect if kCalls later calls have begun meanwhile.
  void end(uint64_t ticket, Code result, int64_t now_ns);

  // Returns the collective or shutdown of that number if it is still recorded.
  std::optional<CallRecord> find(uint32_t group, uint64_t sequence) const;
  std::optional<CallRecord> last_done(uint32_t group) const;      // the newest collective that completed
  std::optional<CallRecord> last_running(uint32_t group) const;   // the newest call that has not ended
  std::optional<CallRecord> last_shutdown(uint32_t group) const;  // the newest shutdown, ended or not
  std::vector<CallRecord> all() const;                            // oldest first

 private:
  // A seqlock. `version` is 4 * ticket + stage, so no value repeats; 0 means that the entry is
  // empty. Each word is stored with release order and loaded with acquire order, because
  // ThreadSanitizer does not support fences.
  enum Stage : uint64_t { kBeginning = 1, kBegun, kEnding, kEnded };
  struct Entry {
    std::atomic<uint64_t> version{0};
    std::array<std::atomic<uint64_t>, sizeof(CallRecord) / sizeof(uint64_t)> words{};

    bool open(uint64_t before, uint64_t now);               // true: this thread may write the entry
    std::optional<CallRecord> read(uint64_t ticket) const;  // nullopt: the entry does not hold that record
  };
  template <class Wanted>
  std::optional<CallRecord> newest(Wanted&& wanted) const;

  const std::unique_ptr<Entry[]> entries_ = std::make_unique<Entry[]>(kCalls);  // ticket modulo kCalls
  std::atomic<uint64_t> next_{0};                                               // ticket of the next call
};

}  // namespace pc
