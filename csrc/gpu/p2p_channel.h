// The way of messages from one GPU to another: a group of two ranks beside all others, whose calls are the messages, one way.
//
// A message is a broadcast of the channel's first rank, so it goes as the calls of a group of these two would
// go: by NCCL, from array to array, or through the host; and is compared, watched and ended as they are. NCCL
// wants both ranks to issue them in one order. That is the order in which the sender says "go", whatever
// their groups and tags. Each way has a channel, because what goes the other way must not wait: ranks that
// exchange arrays do so at once.
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

  // Of the sender: says the next number to the other rank, and launches the message. What fails in either
  // ends the channel; not what fails before, which leaves `sent` false.
  Status go(const WaitContext& context, const std::function<Status(uint64_t number)>& send,
            const std::function<Status()>& launch, bool* sent);
  // Of the receiver, who has heard that number: launches it when all before it have been. What fails ends the
  // channel.
  Status follow(uint64_t number, const WaitContext& context, const std::function<Status()>& launch);
  // Others wait for a message that does not come.
  Status end(const Status& why);

 private:
  Status ended();  // mutex_ held
  Status wait_to_launch(std::unique_lock<std::mutex>& lock, const WaitContext& context,
                        const std::function<bool()>& is_next);
  Communicator& group_;
  const int device_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  uint64_t launched_ = 0;
  std::optional<std::thread::id> launching_;
  Status failure_;
};

// All channels of a runtime, made when they are first used. Thread-safety: all methods.
class P2pChannels {
 public:
  using Join = std::function<Result<std::shared_ptr<GroupOnGpus>>(Communicator& channel, int device,
                                                                  void* stream, double timeout_s)>;
  // `join`: how the group of a channel goes; its ranks call it as any group's.
  P2pChannels(Runtime& runtime, Join join) : runtime_(runtime), join_(std::move(join)) {}
  P2pChannels(const P2pChannels&) = delete;
  P2pChannels& operator=(const P2pChannels&) = delete;

  // Null: there is none for that GPU: there are too many, or it has ended, or is another GPU's of this rank.
  std::shared_ptr<P2pChannel> between(Rank from, Rank to, int device);
  void abort(const Status& why);  // ends who joins one, and waits for its other rank
  Result<std::shared_ptr<GroupOnGpus>> backend_of(const P2pChannel& channel, void* stream,
                                                  double timeout_s) const {
    return join_(channel.group(), channel.device(), stream, timeout_s);
  }

 private:
  static constexpr std::size_t kMost =
      64;  // each may cost a communicator of NCCL, with its memory on the GPU
  Runtime& runtime_;
  const Join join_;
  std::mutex mutex_;
  std::map<std::pair<Rank, Rank>, std::shared_ptr<P2pChannel>> channels_;  // guarded by mutex_
};

}  // namespace pc
