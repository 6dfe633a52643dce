// The messages of a group. A message has a number, counted per peer, tag and direction, and is
// posted at once or searched for. An offered message (offered_message.h) has several parts with one
// number.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "base/waiter.h"
#include "operation/async_work.h"
#include "operation/message.h"

namespace pc {

struct GroupCall;
struct GroupParts;
struct GroupState;

// Thread-safety: all methods.
class GroupMessages final : public OfferAnswers {
 public:
  GroupMessages(const GroupParts& parts, uint32_t group, std::shared_ptr<GroupState> shared,
                double timeout_s);

  // Blocking, as Communicator::run() is.
  Status send(const OutgoingMessage& message, double timeout_s = -1);
  Status recv(const IncomingMessage& message, double timeout_s = -1);
  // Waits for a message of unknown size from `message.peer`, or from any rank if that is kAnyRank.
  Result<FoundMessage> find(const IncomingMessage& message, double timeout_s = -1);
  // Without a `bundle` the message is received as whatever it is, into memory that was made for it;
  // otherwise it must be what is expected here.
  Status recv(Buffer data, const FoundMessage& found, std::optional<uint64_t> bundle);
  void put_back(const FoundMessage& found) { give_back(found.peer, found.tag, false, found.number); }
  // Sends and receives concurrently, so that ranks may do this in a ring.
  Status sendrecv(const OutgoingMessage& out, Buffer in, Rank source, uint32_t tag, double timeout_s = -1);
  // Asynchronous variants, as Communicator::begin().
  Result<std::shared_ptr<AsyncWork>> begin_send(const OutgoingMessage& message, AsyncOptions how);
  Result<std::shared_ptr<AsyncWork>> begin_recv(const IncomingMessage& message, AsyncOptions how);

  // Reserves the number that a message would get now, for a message that is made later. It must be
  // posted, or given back.
  uint64_t take_number(Rank peer, uint32_t tag, bool sends);
  void give_back(Rank peer, uint32_t tag, bool sends, uint64_t number);
  // Sends the message as an offer, and waits as any small send does. Sets `number` to its number,
  // also if this fails; 0 if the other rank was not informed of it.
  Status offer(const OutgoingMessage& message, double timeout_s, uint64_t* number);
  // Takes an offer that was found. Returns kMismatch if it is not this message; then the sender is
  // informed.
  Status take_offer(const FoundMessage& offer, const ConstBuffer& expected, std::optional<uint64_t> bundle);
  // For a receiver that has requested the data and no longer takes them: informs their sender.
  void refuse_data(Rank peer, uint32_t tag, uint64_t number);

  std::string explain() const;  // the paths of the messages, as text
  // Polls from time to time: calls that are done at once do not wait, but other ranks may need this
  // rank to take what they send.
  void look_around();

 private:
  Status check(const GroupMessage& message) const;
  GroupCall number(GroupMessage& message, TimePoint began);  // the caller holds the messages' issue order
  void post(const GroupCall& call, MessageOperation& started);
  void post(TimePoint began, MessageOperation& started);
  bool exchange_at_once(const GroupMessage& message, double timeout_s);
  Status exchange(GroupMessage message, double timeout_s, uint64_t* number = nullptr);
  Status received(MessageOperation& started, const WaitContext& context);
  void refuse(const MessageOperation& offered) override;
  void answer(const MessageOperation& offered, const MessageAnswer& answer);
  Result<std::shared_ptr<AsyncWork>> begin(GroupMessage message, AsyncOptions how);
  WaitContext context_for(double timeout_s, TimePoint began, const std::function<bool()>* stop) const;

  const GroupParts& parts_;
  const uint32_t group_;
  const std::shared_ptr<GroupState> shared_;  // shared with the messages that it has begun
  const double timeout_s_;
  std::atomic<uint32_t> at_once_{0};  // number of calls that were done at once
};

}  // namespace pc
