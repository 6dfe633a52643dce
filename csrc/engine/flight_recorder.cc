#include "engine/flight_recorder.h"

#include <bit>
#include <cstring>
#include <thread>
#include <type_traits>

namespace pc {

static_assert(std::is_trivially_copyable_v<CallRecord> && sizeof(CallRecord) % sizeof(uint64_t) == 0);

bool FlightRecorder::Entry::open(uint64_t expected, uint64_t ticket) {
  return version.compare_exchange_strong(expected, 2 * ticket + 1, std::memory_order_acquire,
                                         std::memory_order_relaxed);
}

void FlightRecorder::Entry::write(const CallRecord& call) {
  std::array<uint64_t, sizeof(CallRecord) / sizeof(uint64_t)> from;
  std::memcpy(from.data(), &call, sizeof call);
  for (std::size_t i = 0; i < from.size(); ++i) words[i].store(from[i], std::memory_order_release);
}

CallRecord FlightRecorder::Entry::read() const {
  std::array<uint64_t, sizeof(CallRecord) / sizeof(uint64_t)> to;
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = words[i].load(std::memory_order_acquire);
  return std::bit_cast<CallRecord>(to);
}

// nullopt: another record is there, or its writer has lost its core for long.
std::optional<CallRecord> FlightRecorder::Entry::consistent(uint64_t ticket) const {
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    const uint64_t before = version.load(std::memory_order_acquire);
    if (before == 2 * ticket + 2) {
      const CallRecord call = read();
      if (version.load(std::memory_order_relaxed) == before) return call;
    } else if (before != 2 * ticket + 1) {
      return std::nullopt;
    }
    std::this_thread::yield();
  }
  return std::nullopt;
}

uint64_t FlightRecorder::begin(const CallRecord& call) {
  const uint64_t ticket = next_.fetch_add(1, std::memory_order_relaxed);
  Entry& entry = entries_[ticket % kCalls];
  // Odd: a thread that is kCalls behind writes here this very moment. It keeps the entry, and this call is not recorded.
  const uint64_t before = entry.version.load(std::memory_order_relaxed);
  if (before % 2 == 0 && before <= 2 * ticket && entry.open(before, ticket)) {
    entry.write(call);
    entry.close(ticket);
  }
  return ticket;
}

void FlightRecorder::end(uint64_t ticket, Code result, int64_t now_ns) {
  Entry& entry = entries_[ticket % kCalls];
  if (!entry.open(2 * ticket + 2, ticket)) return;
  const CallRecord::State state = result == Code::kOk ? CallRecord::State::kDone : CallRecord::State::kFailed;
  // Only the two words that change: every call comes through here.
  std::array<uint8_t, sizeof(uint64_t)> first =
      std::bit_cast<decltype(first)>(entry.words[0].load(std::memory_order_relaxed));
  first[offsetof(CallRecord, state)] = static_cast<uint8_t>(state);
  first[offsetof(CallRecord, result)] = static_cast<uint8_t>(result);
  entry.words[0].store(std::bit_cast<uint64_t>(first), std::memory_order_release);
  entry.words[offsetof(CallRecord, ended_ns) / sizeof(uint64_t)].store(std::bit_cast<uint64_t>(now_ns),
                                                                       std::memory_order_release);
  entry.close(ticket);
}

template <class Wanted>
std::optional<CallRecord> FlightRecorder::newest(Wanted&& wanted) const {
  const uint64_t next = next_.load(std::memory_order_acquire);
  for (uint64_t ticket = next; ticket > 0 && next - ticket < kCalls; --ticket) {
    const std::optional<CallRecord> call = entries_[(ticket - 1) % kCalls].consistent(ticket - 1);
    if (call && wanted(*call)) return call;
  }
  return std::nullopt;
}

std::optional<CallRecord> FlightRecorder::find(uint32_t group, uint64_t sequence) const {
  return newest([&](const CallRecord& call) {
    return call.group == group && call.sequence == sequence &&
           (call.kind == CallRecord::Kind::kCollective || call.kind == CallRecord::Kind::kShutdown);
  });
}

std::optional<CallRecord> FlightRecorder::last_done(uint32_t group) const {
  return newest([&](const CallRecord& call) {
    return call.group == group && call.kind == CallRecord::Kind::kCollective &&
           call.state == CallRecord::State::kDone;
  });
}

std::vector<CallRecord> FlightRecorder::all() const {
  std::vector<CallRecord> calls;
  const uint64_t next = next_.load(std::memory_order_acquire);
  for (uint64_t ticket = next < kCalls ? 0 : next - kCalls; ticket < next; ++ticket) {
    if (const std::optional<CallRecord> call = entries_[ticket % kCalls].consistent(ticket)) {
      calls.push_back(*call);
    }
  }
  return calls;
}

}  // namespace pc
