#include "engine/flight_recorder.h"

#include <bit>
#include <cstring>
#include <thread>
#include <type_traits>

namespace pc {

static_assert(std::is_trivially_copyable_v<CallRecord> && sizeof(CallRecord) % sizeof(uint64_t) == 0);
static_assert(offsetof(CallRecord, state) < sizeof(uint64_t) &&
              offsetof(CallRecord, result) < sizeof(uint64_t));

bool FlightRecorder::Entry::open(uint64_t before, uint64_t now) {
  return version.compare_exchange_strong(before, now, std::memory_order_acquire, std::memory_order_relaxed);
}

std::optional<CallRecord> FlightRecorder::Entry::read(uint64_t ticket) const {
  constexpr int kTries = 100;  // a writer needs only a moment, unless it loses its core
  for (int i = 0; i < kTries; ++i) {
    const uint64_t before = version.load(std::memory_order_acquire);
    if (before <= 4 * ticket || before > 4 * ticket + kEnded) return std::nullopt;
    if (before % 2 == 0) {
      std::array<uint64_t, sizeof(CallRecord) / sizeof(uint64_t)> copy;
      for (std::size_t w = 0; w < copy.size(); ++w) copy[w] = words[w].load(std::memory_order_acquire);
      if (version.load(std::memory_order_relaxed) == before) return std::bit_cast<CallRecord>(copy);
    }
    std::this_thread::yield();
  }
  return std::nullopt;
}

uint64_t FlightRecorder::begin(const CallRecord& call) {
  const uint64_t ticket = next_.fetch_add(1, std::memory_order_relaxed);
  Entry& entry = entries_[ticket % kCalls];
  // If `before` is odd, the thread of another call, kCalls or more tickets away, is writing this
  // entry now. That thread keeps the entry, and this call is not recorded.
  const uint64_t before = entry.version.load(std::memory_order_relaxed);
  if (before % 2 != 0 || before > 4 * ticket || !entry.open(before, 4 * ticket + kBeginning)) return ticket;
  std::array<uint64_t, sizeof(CallRecord) / sizeof(uint64_t)> copy;
  std::memcpy(copy.data(), &call, sizeof call);
  for (std::size_t w = 0; w < copy.size(); ++w) entry.words[w].store(copy[w], std::memory_order_release);
  entry.version.store(4 * ticket + kBegun, std::memory_order_release);
  return ticket;
}

void FlightRecorder::end(uint64_t ticket, Code result, int64_t now_ns) {
  Entry& entry = entries_[ticket % kCalls];
  if (!entry.open(4 * ticket + kBegun, 4 * ticket + kEnding)) return;
  // Writes only the two words that change, because every call runs this code.
  std::array<uint8_t, sizeof(uint64_t)> first =
      std::bit_cast<decltype(first)>(entry.words[0].load(std::memory_order_relaxed));
  first[offsetof(CallRecord, state)] =
      static_cast<uint8_t>(result == Code::kOk ? CallRecord::State::kDone : CallRecord::State::kFailed);
  first[offsetof(CallRecord, result)] = static_cast<uint8_t>(result);
  entry.words[0].store(std::bit_cast<uint64_t>(first), std::memory_order_release);
  entry.words[offsetof(CallRecord, ended_ns) / sizeof(uint64_t)].store(std::bit_cast<uint64_t>(now_ns),
                                                                       std::memory_order_release);
  entry.version.store(4 * ticket + kEnded, std::memory_order_release);
}

template <class Wanted>
std::optional<CallRecord> FlightRecorder::newest(Wanted&& wanted) const {
  const uint64_t next = next_.load(std::memory_order_acquire);
  for (uint64_t ticket = next; ticket > 0 && next - ticket < kCalls; --ticket) {
    const std::optional<CallRecord> call = entries_[(ticket - 1) % kCalls].read(ticket - 1);
    if (call && wanted(*call)) return call;
  }
  return std::nullopt;
}

std::optional<CallRecord> FlightRecorder::find(uint32_t group, uint64_t sequence) const {
  return newest([&](const CallRecord& call) {
    return call.group == group && call.sequence == sequence && call.kind != CallRecord::Kind::kSend &&
           call.kind != CallRecord::Kind::kRecv && call.kind != CallRecord::Kind::kProbe;
  });
}

std::optional<CallRecord> FlightRecorder::last_done(uint32_t group) const {
  return newest([&](const CallRecord& call) {
    return call.group == group && call.kind == CallRecord::Kind::kCollective &&
           call.state == CallRecord::State::kDone;
  });
}

std::optional<CallRecord> FlightRecorder::last_running(uint32_t group) const {
  return newest([&](const CallRecord& call) {
    return call.group == group && call.state == CallRecord::State::kRunning;
  });
}

std::optional<CallRecord> FlightRecorder::last_shutdown(uint32_t group) const {
  return newest([&](const CallRecord& call) {
    return call.group == group && call.kind == CallRecord::Kind::kShutdown;
  });
}

std::vector<CallRecord> FlightRecorder::all() const {
  std::vector<CallRecord> calls;
  const uint64_t next = next_.load(std::memory_order_acquire);
  for (uint64_t ticket = next < kCalls ? 0 : next - kCalls; ticket < next; ++ticket) {
    if (const std::optional<CallRecord> call = entries_[ticket % kCalls].read(ticket)) {
      calls.push_back(*call);
    }
  }
  return calls;
}

}  // namespace pc
