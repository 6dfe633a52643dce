// Messages of one group between arrays on GPUs. Small messages, lists, and messages for which there
// is no channel (p2p_channel.h) are sent through the host as messages of the group. All other
// messages are first offered to the receiver (offered_message.h), and use the channel if the
// receiver's array is on a GPU too.
//
// So only the arrived message shows its receiver whether it is an offer, and only the answer shows
// the sender the path. A large send therefore waits for its receiver, as it does on the CPU. An
// asynchronous message has a thread until the message is queued on the GPU. The thread first waits
// until the message's array has been made, so that on the channel the message waits only for the
// other rank.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "gpu/cuda/event.h"
#include "gpu/cuda/stream.h"
#include "gpu/p2p_channel.h"
#include "gpu/staging/gpu_work.h"
#include "gpu/staging/staged_calls.h"

namespace pc {

class DirectMessageCall;
class MessageFailures;

// Thread-safety: all methods. The group and the channels must outlive it.
class DirectMessages : public std::enable_shared_from_this<DirectMessages> {
 public:
  static Result<std::shared_ptr<DirectMessages>> create(Communicator& group, P2pChannels& channels,
                                                        const std::shared_ptr<const cuda::Driver>& driver,
                                                        int device);
  ~DirectMessages();  // if close() has failed, abort() must precede it
  DirectMessages(const DirectMessages&) = delete;
  DirectMessages& operator=(const DirectMessages&) = delete;

  Communicator& group() const { return group_; }
  // These methods do the same as GroupOnGpus::run() and begin().
  Status run(const UserCall& call, double timeout_s);
  Result<std::shared_ptr<GpuWork>> begin(const UserCall& call, double timeout_s,
                                         std::function<void(const Status&)> on_end = {});
  // Returns the failure of a message that failed after it was queued on the GPU, if no caller has
  // received it. A failure is returned once, to the next call of the group, which fails with it.
  Status take_failure();
  Status close(double timeout_s);
  void abort();  // calls that wait for another rank return soon

 private:
  // Queues the message on the GPU, as a broadcast of its channel.
  using Launch = std::function<Status(GroupOnGpus& backend, const UserCall& call, double timeout_s)>;
  struct Making {  // how one message is run in the current thread
    Deadline deadline;
    const std::function<bool()>* stop = nullptr;  // see MessagePlace
    const Launch& launch;
    double left_s() const { return std::max(deadline.remaining_s(), 0.0); }
    // time limit once the other rank waits for this rank: the time left, but at least kOfferGraceS
    double agreed_s() const { return std::max(left_s(), kOfferGraceS); }
  };
  DirectMessages(Communicator& group, P2pChannels& channels, cuda::Context context, cuda::Stream stream,
                 std::shared_ptr<StagedCalls> staged);
  bool may_be_offered(const ConstBuffer& data) const;
  Status check(UserCall& call) const;
  Status run_until(const UserCall& call, Deadline deadline);
  Status make(const UserCall& call, const Making& how);
  Status through_host(const UserCall& call, const Making& how, double timeout_s);
  WaitContext context_of(const Making& how, double seconds) const;
  Status send(const UserCall& call, const Making& how);
  Status send_part(const UserCall& call, uint64_t number, const MessageGo& go);
  void let_answer_come(const UserCall& call, uint64_t number);
  Status offered(const UserCall& call, P2pChannel& channel, uint64_t number, const Making& how,
                 bool* sent_go);
  Status recv(UserCall& call, const FoundMessage& found, const Making& how);
  Status take(const UserCall& call, const FoundMessage& found, const Making& how);
  Status sendrecv(const UserCall& call, double timeout_s);
  static Status given_up(GpuWork& sending);
  Status until_made(cuda::CUevent made, const WaitContext& context) const;
  Status start(const std::shared_ptr<DirectMessageCall>& call, cuda::EventPool::Lease array_made);
  void join_ended();  // requires mutex_

  Communicator& group_;
  P2pChannels& channels_;
  const cuda::Context context_;
  // replaces the caller's stream in asynchronous messages, because their threads have waited for
  // that stream already
  const cuda::Stream stream_;
  cuda::EventPool events_;
  const std::shared_ptr<StagedCalls> staged_;
  const std::shared_ptr<MessageFailures> failures_;  // shared with the DirectMessageCalls
  std::atomic<bool> stopping_{false};

  struct Thread {
    std::thread thread;
    std::shared_ptr<DirectMessageCall> call;
  };
  std::mutex mutex_;  // guards the members below
  std::list<Thread> threads_;
};

}  // namespace pc
