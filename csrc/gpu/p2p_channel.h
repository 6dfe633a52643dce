// A channel carries messages from one GPU to another, in one direction. It is a separate group of
// two ranks, and each call of that group is one message.
//
// A message is a broadcast from the channel's first rank. So it uses the backend of the channel's
// group (NCCL, from array to array, or through the host), and is compared, watched and ended like
// any call. NCCL requires both ranks to issue the messages in the same order. They use the order in
// which the sender sends "go", regardless of the messages' groups and tags. Each direction has its
// own channel, so that two ranks that exchange arrays can send at the same time.
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

  // For the sender: passes the number of the next message to `send`, which sends the number to the
  // other rank, and then calls `launch`. If either function fails, the channel ends. If an error
  // occurs before `send` is called, the channel does not end, and `*sent` is false.
  Status go(const WaitContext& context, const std::function<Status(uint64_t number)>& send,
            const std::function<Status()>& launch, bool* sent);
  // For the receiver, after it has received `number`: calls `launch` once all earlier messages have
  // been launched. A failure ends the channel.
  Status follow(uint64_t number, const WaitContext& context, const std::function<Status()>& launch);
  // Ends the channel after a failure on this rank, so that the other rank does not wait for a
  // message that is never launched. Returns the channel's first failure.
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
  // `join` returns the backend of a channel's group. Both ranks of the channel call it like any
  // collective.
  P2pChannels(Runtime& runtime, Join join) : runtime_(runtime), join_(std::move(join)) {}
  P2pChannels(const P2pChannels&) = delete;
  P2pChannels& operator=(const P2pChannels&) = delete;

  // Returns the channel from `from` to `to`, and creates it if it does not exist. Returns null if
  // there are too many channels, or if the channel cannot be created, has ended, or belongs to
  // another GPU of this rank.
  std::shared_ptr<P2pChannel> between(Rank from, Rank to, int device);
  // aborts all channels, so that joins that wait for the other rank of a channel end
  void abort(const Status& why);
  Result<std::shared_ptr<GroupOnGpus>> backend_of(const P2pChannel& channel, void* stream,
                                                  double timeout_s) const {
    return join_(channel.group(), channel.device(), stream, timeout_s);
  }

 private:
  // maximum number of channels: each may need an NCCL communicator, with its GPU memory
  static constexpr std::size_t kMost = 64;
  Runtime& runtime_;
  const Join join_;
  std::mutex mutex_;
  std::map<std::pair<Rank, Rank>, std::shared_ptr<P2pChannel>> channels_;  // guarded by mutex_
};

}  // namespace pc
