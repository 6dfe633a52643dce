// The messages of a group. Every message has a number, which counts the messages of one peer, tag
// and direction. A receive is posted either at once or after find() has found its message. An
// offered message (offered_message.h) consists of several parts with the same number.
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

  // Blocking, like Communicator::run().
  Status send(const OutgoingMessage& message, double timeout_s = -1);
  Status recv(const IncomingMessage& message, double timeout_s = -1);
  // Waits for a message of unknown size from `message.peer`, or from any rank if the peer is
  // kAnyRank.
  Result<FoundMessage> find(const IncomingMessage& message, double timeout_s = -1);
  // Receives a message that find() returned. If `bundle` is null, any content is accepted, and
  // `data` is memory that was allocated for the message. Otherwise the message must match `data`
  // and `bundle`.
  Status recv(Buffer data, const FoundMessage& found, std::optional<uint64_t> bundle);
  void put_back(const FoundMessage& found) { give_back(found.peer, found.tag, false, found.number); }
  // Sends and receives concurrently, so that all ranks of a ring can call it at the same time.
  Status sendrecv(const OutgoingMessage& out, Buffer in, Rank source, uint32_t tag, double timeout_s = -1);
  // Asynchronous variants: see Communicator::begin().
  Result<std::shared_ptr<AsyncWork>> begin_send(const OutgoingMessage& message, AsyncOptions how);
  Result<std::shared_ptr<AsyncWork>> begin_recv(const IncomingMessage& message, AsyncOptions how);

  // Reserves the next number for a message that is made later. The caller must post a message with
  // that number, or release the number by give_back().
  uint64_t take_number(Rank peer, uint32_t tag, bool sends);
  void give_back(Rank peer, uint32_t tag, bool sends, uint64_t number);
  // Sends an offer of the message, and waits like any small send. Sets `number` to the number of
  // the message, even on failure, or to 0 if the peer was not informed of the message.
  Status offer(const OutgoingMessage& message, double timeout_s, uint64_t* number);
  // Accepts an offer that find() returned. If the offered array is not the expected one, informs
  // the sender and returns kMismatch.
  Status take_offer(const FoundMessage& offer, const ConstBuffer& expected, std::optional<uint64_t> bundle);
  // Called if this rank has requested the data of an offered message, but will not receive the
  // data. Informs the sender of this.
  void refuse_data(Rank peer, uint32_t tag, uint64_t number);

  std::string explain() const;  // describes the path to each rank, as text
  // Counts a call that completed without waiting, and polls the transport on every 128th: other
  // ranks may need this rank to receive what they send.
  void count_and_poll();

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
  const std::shared_ptr<GroupState> shared_;  // shared with the asynchronous messages of this group
  const double timeout_s_;
  std::atomic<uint32_t> at_once_{0};  // number of calls that completed without waiting
};

}  // namespace pc
