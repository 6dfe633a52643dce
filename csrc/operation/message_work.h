// A message of a group while it is on its way, for whoever waits for it: at once, later, or never.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/plan/point_to_point.h"
#include "failure/descriptor.h"
#include "operation/launched_work.h"
#include "operation/offered_message.h"
#include "operation/wait_watch.h"

namespace pc {

Status has_left(const std::string& who);  // whose message was waited for

// One send or receive that has its number. Stays where it is: what moves the message points into it.
class StartedMessage {
 public:
  struct What {
    ConstBuffer data;
    Rank peer = 0;
    uint32_t tag = 0;
    bool sends = false;
    std::string description = {};  // of what is sent, for a receiver that does not know
    uint64_t bundle = 0;           // 0: it is no list of arrays
    MessagePart part = MessagePart::kWhole;
    bool is_sent() const { return sends != (part == MessagePart::kAnswer); }  // who sends it gets the answer
    std::string_view verb() const { return is_sent() ? "send to" : "recv from"; }
  };
  StartedMessage(GroupState& group, What what) : group_(group), what_(std::move(what)) {}
  StartedMessage(const StartedMessage&) = delete;
  StartedMessage& operator=(const StartedMessage&) = delete;
  ~StartedMessage() = default;

  const What& what() const { return what_; }
  Work* work() const { return work_.get(); }
  std::string operation() const;
  MessageWatch& watch();
  // Once, by whoever posts it.
  MessageEnd* how() { return &how_; }
  void set_posted(const GroupCalls::Call& call, const MessageId& id, std::unique_ptr<Work> work);
  WaitEnd drive(WaitContext context);
  bool asks(const WaitContext& context);  // see LaunchedWork
  // Waits. True: instead of the data that is expected here, an offer of it has come, and has been taken.
  bool was_offered(const WaitContext& context);
  // Waits, and puts the end into the words of the group. Once.
  Status finish(const WaitContext& context);
  // After finish(): an offer has come that is not taken, and whose sender waits for an answer.
  bool refuses_offer() const;
  bool expects_offered() const { return digest_ == (how_.found.digest & ~kOfferBit); }  // the same array
  uint64_t number() const { return number_; }
  bool untold() const { return ended_ && how_.untold; }  // the other rank knows nothing of it

 private:
  const Status& end(WaitContext context);  // waits; again and again
  Status in_words(const Status& ended) const;

  GroupState& group_;
  const What what_;
  GroupCalls::Call call_;
  uint64_t number_ = 0, digest_ = 0;
  MessageEnd how_;
  std::unique_ptr<Work> work_;
  std::optional<MessageWatch> watch_;
  std::optional<Status> ended_;
};

// Answers the sender of an offer that a receive cannot take. Thread-safety: all methods.
class OfferAnswers {
 public:
  virtual void refuse(const StartedMessage& offered) = 0;

 protected:
  ~OfferAnswers() = default;
};

class MessageWork final : public LaunchedWork {
 public:
  // `offers` outlives it.
  MessageWork(std::shared_ptr<GroupState> group, StartedMessage::What what, OfferAnswers& offers)
      : LaunchedWork(std::move(group)),
        message_(*group_, std::move(what)),
        operation_(message_.operation()),
        offers_(offers) {}
  StartedMessage& started() { return message_; }  // to be posted by whoever makes this

  bool done() const override { return message_.work()->done(); }
  WaitEnd drive(const WaitContext& context) override { return message_.drive(context); }
  void progress() override {}
  void ring(CompletionSink* bell, uint64_t token) override { message_.work()->ring(bell, token); }
  Status wait(const WaitContext& context) override;
  void cancel() override { message_.work()->cancel(); }
  Rank waits_for() const override { return message_.what().peer; }
  std::string where() const override { return message_.work()->where(); }
  void look_after(TimePoint now) override { message_.watch().look(now); }
  bool asks(const WaitContext& context) override { return message_.asks(context); }
  uint64_t sequence() const override { return 0; }
  const std::string& operation() const override { return operation_; }

 private:
  StartedMessage message_;
  const std::string operation_;
  OfferAnswers& offers_;
  bool told_ = false;
  Status outcome_;
};

}  // namespace pc
