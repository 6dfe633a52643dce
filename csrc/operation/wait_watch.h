// Monitors calls that wait for long.
#pragma once

#include <chrono>
#include <span>
#include <string_view>

#include "engine/executor.h"
#include "failure/group_calls.h"

namespace pc {

// Checks a call periodically, and writes one warning if it waits for long.
class LongWait : public WaitWatch {
 public:
  LongWait(GroupCalls& calls, TimePoint began, Work& work)
      : calls_(calls),
        work_(work),
        began_(began),
        look_at_(began + kFirst) {}
  void look(TimePoint now) final;

 protected:
  ~LongWait() = default;
  virtual void look_after(Rank peer) = 0;
  virtual void warn() = 0;
  GroupCalls& calls_;
  Work& work_;

 private:
  static constexpr std::chrono::milliseconds kFirst{100}, kNext{250};
  const TimePoint began_;
  TimePoint look_at_;
  bool warned_ = false;
};

// Monitors a collective. Queries the rank for which the call waits, because the two ranks may be in
// different calls and exchange no message that would show it.
class CallWatch final : public LongWait {
 public:
  CallWatch(GroupCalls& calls, const GroupCall& call, Work& work)
      : CallWatch(calls, call, work, call.began) {}
  // `began` is the time at which the call reached the head of the issue order.
  CallWatch(GroupCalls& calls, const GroupCall& call, Work& work, TimePoint began)
      : LongWait(calls, began, work),
        id_(calls.id(call.sequence)) {}

 private:
  void look_after(Rank peer) override;
  void warn() override;
  const CallId id_;
};

// Monitors a message. Cancels it if its peer, or every rank that could send it, has called
// shutdown().
class MessageWatch final : public LongWait {
 public:
  // The memory of `peers` must stay valid.
  MessageWatch(GroupCalls& calls, const GroupCall& call, Work& work, std::span<const Rank> peers,
               std::string_view verb)
      : LongWait(calls, call.began, work),
        peers_(peers),
        verb_(verb) {}
  bool peers_have_left() const { return left_; }

 private:
  void look_after(Rank) override;
  void warn() override;
  const std::span<const Rank> peers_;
  const std::string_view verb_;
  bool left_ = false;
};

}  // namespace pc
