// A message of a group in flight.
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

Status has_left(const std::string& rank_name);  // the error of a message if its peer has called shutdown()

// One send or receive that has a number. The transport's operation points into this object.
class MessageOperation final : public Operation {
 public:
  MessageOperation(GroupState& group, GroupMessage message)
      : Operation(group),
        message_(std::move(message)) {}
  // For an operation that may outlive its group. `offers` must outlive the operation.
  MessageOperation(const std::shared_ptr<GroupState>& group, GroupMessage message, OfferAnswers& offers)
      : Operation(*group, group),
        message_(std::move(message)),
        offers_(&offers) {}
  ~MessageOperation() override = default;

  const GroupMessage& message() const { return message_; }
  // Used once, by the code that numbers and posts the message.
  GroupMessage& message() { return message_; }
  MessageEnd* how() { return &how_; }
  void set_posted(const GroupCall& call, WorkPtr work) {
    call_ = call;
    work_ = std::move(work);
  }
  // Waits until the operation has ended. Returns true if the receive got an offer of the expected
  // array instead of the array.
  bool was_offered(const WaitContext& context);
  // Waits until the operation has ended, and turns its end into the error that the caller gets. May
  // be called only once.
  Status finish(const WaitContext& context);
  // Valid after finish(). Returns true if an offer has arrived that this receive cannot take. The
  // sender of the offer then waits for an answer.
  bool refuses_offer() const;
  // Returns true if the offered array is the one that this receive expects.
  bool expects_offered() const { return message_.id.digest == (how_.found.digest & ~kOfferBit); }
  bool unannounced() const { return ended_ && how_.unannounced; }  // the peer was not informed of the message

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
  const Status& end(WaitContext context);  // waits; may be called repeatedly
  Status in_words(const Status& ended) const;

  GroupMessage message_;
  OfferAnswers* const offers_ = nullptr;  // null: the waiting caller checks refuses_offer() itself
  GroupCall call_;
  MessageEnd how_;
  WorkPtr work_;
  std::optional<MessageWatch> watch_;
  std::optional<Status> ended_;
  std::optional<Status> outcome_;  // what wait() has returned
};

}  // namespace pc
