// The communicator of one group over one transport.
#pragma once

#include <atomic>
#include <memory>

#include "bootstrap/world.h"
#include "comm/communicator.h"
#include "comm/devices.h"
#include "engine/hierarchical/group_table.h"
#include "engine/plan/plan_executor.h"
#include "operation/collective_operation.h"
#include "operation/message_operation.h"
#include "operation/progress.h"
#include "tuning/profile.h"
#include "tuning/selection.h"

namespace pc {

// Thread-safety: all methods.
class GroupCommunicator final : public Communicator, public OfferAnswers {
 public:
  struct Parts {  // not owned; all outlive the communicator
    GroupCalls::Parts calls;
    Progress* progress = nullptr;
    Transport* transport = nullptr;  // of messages, to this rank itself too
    const std::function<bool()>* interrupted = nullptr;
    Check check = Check::kOn;
    Rank hosts = 1;              // on how many the ranks are
    bool shares_memory = false;  // the executor runs collectives without plans
    shm::Islands islands = {};   // worth it: the executor is one that goes by islands
    const Profile* profile = nullptr;
    Status gpus_may_join = {};
    LazyDevices* devices = nullptr;  // of calls of arrays that do not lie on the host; null: there are none
  };
  GroupCommunicator(const Parts& parts, uint32_t group, GroupNames names, double timeout_s,
                    SelectionTable selection);
  ~GroupCommunicator() override;  // ends what still runs
  GroupCommunicator(const GroupCommunicator&) = delete;
  GroupCommunicator& operator=(const GroupCommunicator&) = delete;

  uint32_t id() const { return group_; }
  std::span<const Rank> world_ranks() const override { return shared_->calls.names().world_ranks(); }
  Status run(const Request& request, double timeout_s) override;
  using Communicator::send;
  Status send(const OutgoingMessage& message, double timeout_s) override;
  using Communicator::recv;
  Status recv(const IncomingMessage& message, double timeout_s) override;
  using Communicator::find;
  Result<FoundMessage> find(const IncomingMessage& message, double timeout_s) override;
  uint64_t take_number(Rank peer, uint32_t tag, bool sends) override;
  void give_back(Rank peer, uint32_t tag, bool sends, uint64_t number) override;
  Status offer(const OutgoingMessage& message, double timeout_s, uint64_t* number) override;
  void refuse_data(Rank peer, uint32_t tag, uint64_t number) override;
  Status may_call() override { return usable(); }
  Status take_offer(const FoundMessage& offer, const ConstBuffer& expected,
                    std::optional<uint64_t> bundle) override;
  Status recv(Buffer data, const FoundMessage& message, std::optional<uint64_t> bundle) override;
  void put_back(const FoundMessage& message) override;
  Status sendrecv(const OutgoingMessage& out, Buffer in, Rank source, uint32_t tag,
                  double timeout_s) override;
  Result<std::shared_ptr<AsyncWork>> begin_comparison(const Request& described, const Algorithm& by,
                                                      Async how) override;
  WaitContext waiting_until(Deadline deadline) const override {
    return {deadline, shared_->calls.word(), parts_.interrupted, nullptr};
  }
  void unheard(const Status& outcome) override { shared_->calls.unheard(outcome); }
  Status gpus_may_join() const override { return parts_.gpus_may_join; }
  bool is_strict() const override { return parts_.check == Check::kStrict; }
  Status alive() override {
    PC_TRY(shared_->calls.alive());
    return shared_->calls.quit_by_others();
  }
  Status resync(double timeout_s, const char* site) override;
  Result<std::unique_ptr<Work>> launch(const Request& request) override;
  Result<std::unique_ptr<Work>> launch_send(const OutgoingMessage& message) override;
  Result<std::unique_ptr<Work>> launch_recv(Buffer data, Rank peer, uint32_t tag, const char* site) override;
  Result<std::shared_ptr<AsyncWork>> begin(const Request& request, Async how) override;
  Result<std::shared_ptr<AsyncWork>> begin_send(const OutgoingMessage& message, Async how) override;
  using Communicator::begin_recv;
  Result<std::shared_ptr<AsyncWork>> begin_recv(const IncomingMessage& message, Async how) override;
  Result<std::string> explain(ExplainedCall call) const override;
  std::string explain_messages() const override;
  bool ended() const override;
  void abort(const Status& why) noexcept override;
  void quit(const Status& why) override { shared_->calls.quit(why); }
  // Waits until every rank has come here. A rank that is in another call instead is told that this one leaves. Whatever
  // the outcome, no call may follow; but the connections stay, so that a goodbye can be said.
  Status leave(double timeout_s);
  // This rank goes: what still runs in other threads ends without a word to the others.
  void close() { shared_->calls.close(); }

 private:
  // Whether what the devices make is asked for: an array lies there.
  bool on_devices(Device in, Device out = {}) const {
    return (in.type != DeviceType::kCpu || out.type != DeviceType::kCpu) && parts_.devices != nullptr;
  }
  Status usable();   // why no call can be made now
  Status goes_on();  // why one cannot go on
  enum class Purpose : uint8_t { kCall, kResync, kLeave };
  Status make(const Request& request, double timeout_s, Purpose purpose = Purpose::kCall);
  Choice choose(const Request& request) const;
  void look_around();
  struct NextCall {
    TimePoint began;
    bool waits = false;  // the caller waits at once
    bool leaving = false;
    uint64_t confirms = 0;  // not 0: the number of the call that it confirms
  };
  Status start(const Request& request, const Choice& choice, const NextCall& as,
               CollectiveOperation& started);
  void start_next(const Request& described, const Choice& described_choice, const NextCall& as,
                  const Request& made, const Choice& choice, CollectiveOperation::Call& next);
  Result<std::unique_ptr<Work>> executor_launch(const Request& request, const Launch& launch);
  // A send has a message that is read only.
  struct Message {
    Buffer data;
    Rank peer;
    uint32_t tag;
    bool sends;
    const char* site;
    uint64_t number = 0;           // 0: the next
    std::string description = {};  // of what is sent
    uint64_t bundle = 0;
    std::optional<uint64_t> digest = {};  // instead of that of what is said here
    MessagePlace place = {};
    bool is_whole() const { return place.part == MessagePart::kWhole; }
    bool is_offer() const { return place.part == MessagePart::kOffer; }
    bool goes_on() const {  // of a call that was let in: it has its number, or another part came before
      return place.number != 0 || (!is_whole() && !(is_offer() && sends));
    }
    // An offer has no data, though it says what that is.
    std::size_t nbytes() const { return is_offer() ? 0 : data.nbytes(); }
    Buffer payload() const { return is_offer() ? Buffer{} : data; }
    MessageOperation::What what() const {
      return {place.array != nullptr ? *place.array : ConstBuffer(data),
              peer,
              tag,
              sends,
              description,
              bundle,
              place.part};
    }
  };
  static Message sent(const OutgoingMessage& message);
  Status check(const Message& message);
  struct NumberedMessage {
    MessageId id;
    GroupCalls::Call call;
  };
  NumberedMessage number(const Message& message, TimePoint began);  // the turn of messages held
  void post(const Message& message, const NumberedMessage& numbered, MessageOperation& started);
  void post(const Message& message, TimePoint began, MessageOperation& started);
  bool exchange_at_once(const Message& message, const NumberedMessage& numbered, double timeout_s);
  Status exchange(const Message& message, double timeout_s, uint64_t* number = nullptr);
  Status received(MessageOperation& started, const Message& message, const WaitContext& context);
  void refuse(const MessageOperation& offered) override;
  void answer(const MessageOperation& offered, const MessageAnswer& answer);
  Result<std::unique_ptr<MessageOperation>> launch(const Message& message, TimePoint began);
  Result<std::unique_ptr<CollectiveOperation>> launch(const Request& checked, TimePoint began);
  Result<std::shared_ptr<AsyncWork>> begin(const Message& message, Async how);
  WaitContext context_for(double timeout_s, TimePoint began,
                          const std::function<bool()>* stop = nullptr) const;

  const Parts parts_;
  const uint32_t group_;
  const SelectionTable selection_;
  const std::shared_ptr<GroupState> shared_;  // with the Work it launched
  std::atomic<uint32_t> at_once_{0};          // calls that were done at once
};

}  // namespace pc
