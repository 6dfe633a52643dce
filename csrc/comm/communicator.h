// A group of ranks that call collectives together. Checks arguments, numbers and fingerprints every call, chooses the
// algorithm, hands it to an executor, and turns what went wrong into one Status that names rank, peer, operation and time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/status.h"
#include "comm/explain_call.h"
#include "engine/executor.h"
#include "operation/message.h"

namespace pc {

class AsyncWork;

// Thread-safety: all methods. Calls on one group are ordered by the caller; two threads on one group take turns.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Rank rank() const { return rank_; }
  Rank size() const { return size_; }
  double timeout_s() const { return timeout_s_; }
  virtual std::span<const Rank> world_ranks() const = 0;  // of its ranks, in their order

  // Blocking, in this thread. timeout_s < 0: the group's default. Bad input: kInvalidArgument before a byte is sent.
  virtual Status run(const Request& request, double timeout_s = -1) = 0;
  virtual Status send(const OutgoingMessage& message, double timeout_s = -1) = 0;
  Status send(ConstBuffer data, Rank peer, uint32_t tag, double timeout_s = -1, const char* site = nullptr) {
    return send({data, peer, tag, site}, timeout_s);
  }
  virtual Status recv(const IncomingMessage& message, double timeout_s = -1) = 0;
  Status recv(Buffer data, Rank peer, uint32_t tag, double timeout_s = -1, const char* site = nullptr) {
    return recv({data, peer, tag, site}, timeout_s);
  }
  // Waits for a message of `message.peer`, or of kAnyRank, whose size nobody here knows.
  virtual Result<FoundMessage> find(const IncomingMessage& message, double timeout_s = -1) = 0;
  Result<FoundMessage> find(Rank peer, uint32_t tag, double timeout_s = -1, const char* site = nullptr) {
    return find({{}, peer, tag, site}, timeout_s);
  }
  // Without a `bundle` into memory that was made for it, whatever it is; else as the message that is expected here.
  virtual Status recv(Buffer data, const FoundMessage& message, std::optional<uint64_t> bundle = 0) = 0;
  virtual void put_back(const FoundMessage& message) = 0;
  virtual Status may_call() = 0;  // not OK: what the next call would raise, which is raised by this
  // For who makes a message later, in its turn: the number that it would get now. It is posted, or given back.
  virtual uint64_t take_number(Rank peer, uint32_t tag, bool sends) = 0;
  virtual void give_back(Rank peer, uint32_t tag, bool sends, uint64_t number) = 0;
  // Sends what is to be sent as an offer, and waits as any small send does. `number`: its number, 0 if the other rank knows nothing
  // of it; also if this fails.
  virtual Status offer(const OutgoingMessage& message, double timeout_s, uint64_t* number) = 0;
  // Of a receiver who has asked for the data, and takes them no more: their sender hears of it.
  virtual void refuse_data(Rank peer, uint32_t tag, uint64_t number) = 0;
  // Takes an offer that was found. kMismatch: it is not this message, and the sender hears of it.
  virtual Status take_offer(const FoundMessage& offer, const ConstBuffer& expected,
                            std::optional<uint64_t> bundle) = 0;
  // Sends and receives at once, so that ranks may do this in a ring.
  virtual Status sendrecv(const OutgoingMessage& out, Buffer in, Rank source, uint32_t tag,
                          double timeout_s = -1) = 0;
  // The same without waiting; the Work is driven by whoever waits on it, and tells how the call ended, also if it could not
  // begin because others gave it up before. Null: it has ended well already.
  virtual Result<std::unique_ptr<Work>> launch(const Request& request) = 0;
  virtual Result<std::unique_ptr<Work>> launch_send(const OutgoingMessage& message) = 0;
  virtual Result<std::unique_ptr<Work>> launch_recv(Buffer data, Rank peer, uint32_t tag,
                                                    const char* site = nullptr) = 0;

  // Likewise, but the progress thread drives what nobody waits for, and the call goes on whether anybody holds it or not:
  // its memory must stay until it has ended. The timeout counts from here.
  struct Async {
    double timeout_s = -1;
    std::function<void(const Status&)> on_end = {};  // HostWork::Start
    std::shared_ptr<const void> keeps =
        {};  // what arrays on a GPU need to live, let go when the call has ended
  };
  virtual Result<std::shared_ptr<AsyncWork>> begin(const Request& request, Async how) = 0;
  virtual Result<std::shared_ptr<AsyncWork>> begin_send(const OutgoingMessage& message, Async how) = 0;
  virtual Result<std::shared_ptr<AsyncWork>> begin_recv(const IncomingMessage& message, Async how) = 0;
  Result<std::shared_ptr<AsyncWork>> begin_recv(Buffer data, Rank peer, uint32_t tag, const char* site,
                                                Async how) {
    return begin_recv({data, peer, tag, site}, std::move(how));
  }

  // A call that something else makes, NCCL say: numbered, described and compared like any other, while it runs elsewhere.
  // It has been checked, and its arrays are not touched. `by` names what makes it. The AsyncWork ends well when all ranks have
  // made the same call. Null: there is nothing to compare, because there is one rank, or nobody is to.
  virtual Result<std::shared_ptr<AsyncWork>> begin_comparison(const Request& described, const Algorithm& by,
                                                              Async how) = 0;
  // How a call that was begun failed for whose end nobody asks: the next call raises it, or it is logged.
  virtual void unheard(const Status& outcome) = 0;
  // For waits of such calls: ends when the group does.
  virtual WaitContext waiting_until(Deadline deadline) const = 0;
  // Whether its ranks may meet on their GPUs: kUnsupported, and why not, where some have none. The same on every rank.
  virtual Status gpus_may_join() const = 0;
  virtual bool is_strict()
      const = 0;               // PYCOLLECTIVE_CHECK=strict: whatever can be compared is, by every call
  virtual Status alive() = 0;  // not OK: the group has ended, or a member has quit, and why

  // After an error that not all ranks have seen in the same call: barriers until one succeeds. Then all are in step again.
  // What has come up about earlier calls and was not raised here is logged then.
  virtual Status resync(double timeout_s = -1, const char* site = nullptr) = 0;

  // One call in words: algorithm and why, times on paper, steps. The group and the transport are this communicator's.
  virtual Result<std::string> explain(ExplainedCall call) const = 0;
  virtual std::string explain_messages() const = 0;  // which way they take, in words
  // A member has died or left, or the group was closed: every call raises.
  virtual bool ended() const = 0;
  // Ends everything that runs on this group, now and later, with `why`. The first cause stays.
  virtual void abort(const Status& why) noexcept = 0;
  // Likewise, and on the other members with kPeerExited, in the call in which they would wait for this rank. Messages of the
  // others end with their deadlines.
  virtual void quit(const Status& why) = 0;

 protected:
  Rank rank_ = 0, size_ = 1;
  double timeout_s_ = 600;
};

}  // namespace pc
