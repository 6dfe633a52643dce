// A channel for messages from one GPU to another, in one direction: a separate group of two ranks.
// Its calls are the messages.
//
// A message is a broadcast from the channel's first rank. So it uses the backend of a group of
// these two ranks (NCCL, from array to array, or through the host), and is compared, watched and
// ended like any call. NCCL requires both ranks to issue the messages in one order: the order in
// which the sender sends "go", whatever their groups and tags. Each direction has a channel of its
// own, because messages in the other direction must not wait: ranks that exchange arrays send both
// at once.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "comm/communicator.h"
#include "comm/runtime.h"
#include "gpu/group_on_gpus.h"

namespace pc {

// One rank's end of a channel. Thread-safety: all methods.
class P2pChannel {
 public:
  P2pChannel(Communicator& group, int device) : group_(group), device_(device) {}
  Communicator& group() const { return group_; }
  int device() const { return device_; }
  bool has_ended();

  // For the sender: sends the next number to the other rank, and launches the message. A failure of
  // either ends the channel; an earlier failure does not, and leaves `sent` false.
  Status go(const WaitContext& context, const std::function<Status(uint64_t number)>& send,
            const std::function<Status()>& launch, bool* sent);
  // For the receiver, after it has received that number: launches the message once all before it
  // have been launched. A failure ends the channel.
  Status follow(uint64_t number, const WaitContext& context, const std::function<Status()>& launch);
  // Ends the channel: the other rank would wait for a message that is never launched.
  Status end(const Status& why);

 private:
  Status ended();  // requires mutex_
  Status wait_to_launch(std::unique_lock<std::mutex>& lock, const WaitContext& context,
                        const std::function<bool()>& is_next);
  Communicator& group_;
  const int device_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  uint64_t launched_ = 0;
  std::optional<std::thread::id> launching_;
  Status failure_;
};

// All channels of a runtime, created on first use. Thread-safety: all methods.
class P2pChannels {
 public:
  using Join = std::function<Result<std::shared_ptr<GroupOnGpus>>(Communicator& channel, int device,
                                                                  void* stream, double timeout_s)>;
  // `join` returns the backend of a channel's group; both of its ranks call it like any collective.
  P2pChannels(Runtime& runtime, Join join) : runtime_(runtime), join_(std::move(join)) {}
  P2pChannels(const P2pChannels&) = delete;
  P2pChannels& operator=(const P2pChannels&) = delete;

  // Returns null if no channel is available for that GPU: there are too many, it has ended, or it
  // belongs to another GPU of this rank.
  std::shared_ptr<P2pChannel> between(Rank from, Rank to, int device);
  void abort(const Status& why);  // ends joins of a channel that wait for its other rank
  Result<std::shared_ptr<GroupOnGpus>> backend_of(const P2pChannel& channel, void* stream,
                                                  double timeout_s) const {
    return join_(channel.group(), channel.device(), stream, timeout_s);
  }

 private:
  static constexpr std::size_t kMost = 64;  // each may need an NCCL communicator, with its GPU memory
  Runtime& runtime_;
  const Join join_;
  std::mutex mutex_;
  std::map<std::pair<Rank, Rank>, std::shared_ptr<P2pChannel>> channels_;  // guarded by mutex_
};

}  // namespace pc
