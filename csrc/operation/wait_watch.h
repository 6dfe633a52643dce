// Looks after calls that wait for long.
#pragma once

#include <chrono>
#include <span>
#include <string_view>

#include "engine/executor.h"
#include "failure/group_calls.h"

namespace pc {

// Looks every now and then, and has one warning written.
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

// Asks the rank that the call waits for, which finds a disagreement that shows in no message.
class CallWatch final : public LongWait {
 public:
  CallWatch(GroupCalls& calls, const GroupCall& call, Work& work)
      : CallWatch(calls, call, work, call.began) {}
  // `began`: when its turn came.
  CallWatch(GroupCalls& calls, const GroupCall& call, Work& work, TimePoint began)
      : LongWait(calls, began, work),
        id_(calls.id(call.sequence)) {}

 private:
  void look_after(Rank peer) override;
  void warn() override;
  const CallId id_;
};

// Gives a message up whose other end, or each that it may come from, has left.
class MessageWatch final : public LongWait {
 public:
  // `peers` stay where they are.
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
