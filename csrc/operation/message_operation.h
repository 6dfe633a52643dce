// A message of a group while it is on its way.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/plan/point_to_point.h"
#include "failure/descriptor.h"
#include "operation/message.h"
#include "operation/operation.h"
#include "operation/wait_watch.h"

namespace pc {

Status has_left(const std::string& who);  // whose message was waited for

// One send or receive that has its number. What moves the message points into it.
class MessageOperation final : public Operation {
 public:
  MessageOperation(GroupState& group, GroupMessage message)
      : Operation(group),
        message_(std::move(message)) {}
  // For one that may outlive its group. `offers` outlives it.
  MessageOperation(const std::shared_ptr<GroupState>& group, GroupMessage message, OfferAnswers& offers)
      : Operation(*group, group),
        message_(std::move(message)),
        offers_(&offers) {}
  ~MessageOperation() override = default;

  const GroupMessage& message() const { return message_; }
  // Once, by its maker, which numbers and posts it.
  GroupMessage& message() { return message_; }
  MessageEnd* how() { return &how_; }
  void set_posted(const GroupCall& call, WorkPtr work) {
    call_ = call;
    work_ = std::move(work);
  }
  // Waits. True: instead of the data that is expected here, an offer of it has come, and has been taken.
  bool was_offered(const WaitContext& context);
  // Waits, and puts the end into the words of the group. Once.
  Status finish(const WaitContext& context);
  // After finish(): an offer has come that is not taken, and whose sender waits for an answer.
  bool refuses_offer() const;
  // The same array is expected here.
  bool expects_offered() const { return message_.id.digest == (how_.found.digest & ~kOfferBit); }
  bool unannounced() const { return ended_ && how_.unannounced; }  // the other rank knows nothing of it

  bool done() const override { return work_->done(); }
  WaitEnd drive(const WaitContext& context) override;
  void progress() override {}
  void notify(CompletionSink* notifier, uint64_t token) override { work_->notify(notifier, token); }
  Status wait(const WaitContext& context) override;
  void cancel() override { work_->cancel(); }
  Rank waits_for() const override { return message_.peer; }
  std::string where() const override { return work_->where(); }
  void look_after(TimePoint now) override { watch().look(now); }
  bool requests_reports(const WaitContext& context) override;
  uint64_t sequence() const override { return 0; }
  std::string text() const override;

 private:
  MessageWatch& watch();
  const Status& end(WaitContext context);  // waits; again and again
  Status in_words(const Status& ended) const;

  GroupMessage message_;
  OfferAnswers* const offers_ = nullptr;  // null: the caller that waits looks at refuses_offer()
  GroupCall call_;
  MessageEnd how_;
  WorkPtr work_;
  std::optional<MessageWatch> watch_;
  std::optional<Status> ended_;
  std::optional<Status> outcome_;  // what wait() has told
};

}  // namespace pc
