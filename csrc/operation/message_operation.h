// A message of a group while it is on its way.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/plan/point_to_point.h"
#include "failure/descriptor.h"
#include "operation/offered_message.h"
#include "operation/operation.h"
#include "operation/wait_watch.h"

namespace pc {

Status has_left(const std::string& who);  // whose message was waited for

class MessageOperation;

// Answers the sender of an offer that a receive cannot take. Thread-safety: all methods.
class OfferAnswers {
 public:
  virtual void refuse(const MessageOperation& offered) = 0;

 protected:
  ~OfferAnswers() = default;
};

// One send or receive that has its number. What moves the message points into it.
class MessageOperation final : public Operation {
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
  MessageOperation(GroupState& group, What what) : Operation(group), what_(std::move(what)) {}
  // For one that may outlive its group. `offers` outlives it.
  MessageOperation(const std::shared_ptr<GroupState>& group, What what, OfferAnswers& offers)
      : Operation(*group, group),
        what_(std::move(what)),
        offers_(&offers) {}
  ~MessageOperation() override = default;

  const What& what() const { return what_; }
  // Once, by its maker, which posts it.
  MessageEnd* how() { return &how_; }
  void set_posted(const GroupCalls::Call& call, const MessageId& id, WorkPtr work);
  // Waits. True: instead of the data that is expected here, an offer of it has come, and has been taken.
  bool was_offered(const WaitContext& context);
  // Waits, and puts the end into the words of the group. Once.
  Status finish(const WaitContext& context);
  // After finish(): an offer has come that is not taken, and whose sender waits for an answer.
  bool refuses_offer() const;
  bool expects_offered() const { return digest_ == (how_.found.digest & ~kOfferBit); }  // the same array
  uint64_t number() const { return number_; }
  bool untold() const { return ended_ && how_.untold; }  // the other rank knows nothing of it

  bool done() const override { return work_->done(); }
  WaitEnd drive(const WaitContext& context) override;
  void progress() override {}
  void ring(CompletionSink* bell, uint64_t token) override { work_->ring(bell, token); }
  Status wait(const WaitContext& context) override;
  void cancel() override { work_->cancel(); }
  Rank waits_for() const override { return what_.peer; }
  std::string where() const override { return work_->where(); }
  void look_after(TimePoint now) override { watch().look(now); }
  bool asks(const WaitContext& context) override;
  uint64_t sequence() const override { return 0; }
  std::string text() const override;

 private:
  MessageWatch& watch();
  const Status& end(WaitContext context);  // waits; again and again
  Status in_words(const Status& ended) const;

  const What what_;
  OfferAnswers* const offers_ = nullptr;  // null: the caller that waits looks at refuses_offer()
  GroupCalls::Call call_;
  uint64_t number_ = 0, digest_ = 0;
  MessageEnd how_;
  WorkPtr work_;
  std::optional<MessageWatch> watch_;
  std::optional<Status> ended_;
  std::optional<Status> outcome_;  // what wait() has told
};

}  // namespace pc
