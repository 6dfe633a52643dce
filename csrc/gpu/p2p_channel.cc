#include "gpu/p2p_channel.h"

#include "base/wait_in_slices.h"

namespace pc {

Status P2pChannel::ended() { return failure_.is_ok() ? group_.alive() : failure_; }

bool P2pChannel::has_ended() {
  const std::lock_guard lock(mutex_);
  return !ended().is_ok();
}

Status P2pChannel::end(const Status& why) {
  const std::lock_guard lock(mutex_);
  if (!failure_.is_ok()) return failure_;
  failure_ = why;
  if (group_.alive().is_ok()) group_.quit(why);
  changed_.notify_all();
  return failure_;
}

// Waits until no other thread launches a message and `is_next` returns true. Then marks this thread
// as the launching one.
Status P2pChannel::wait_to_launch(std::unique_lock<std::mutex>& lock, const WaitContext& context,
                                  const std::function<bool()>& is_next) {
  if (launching_ == std::this_thread::get_id())
    return Status(Code::kInvalidArgument,
                  "a signal handler that runs while a message to or from that rank is queued on the GPU "
                  "cannot make another");
  const Status waited = wait_in_slices(lock, changed_, context, [&]() -> Result<bool> {
    PC_TRY(ended());
    return !launching_ && is_next();
  });
  PC_TRY(ended());
  if (waited.code() == Code::kTimeout)
    return Status(Code::kTimeout, "an earlier message in that direction has not been queued on the GPU");
  PC_TRY(waited);
  launching_ = std::this_thread::get_id();
  return Status::ok();
}

Status P2pChannel::go(const WaitContext& context, const std::function<Status(uint64_t)>& send,
                      const std::function<Status()>& launch, bool* sent) {
  *sent = false;
  uint64_t number = 0;
  {
    std::unique_lock lock(mutex_);
    PC_TRY(wait_to_launch(lock, context, [] { return true; }));
    number = launched_ + 1;
  }
  *sent = true;  // even if send() fails, since the message may have arrived
  Status done = send(number);
  if (done.is_ok()) done = launch();
  {
    const std::lock_guard lock(mutex_);
    launched_ = number;
    launching_.reset();
  }
  changed_.notify_all();
  return done.is_ok() ? done : end(done);
}

Status P2pChannel::follow(uint64_t number, const WaitContext& context,
                          const std::function<Status()>& launch) {
  Status done;
  {
    std::unique_lock lock(mutex_);
    done = wait_to_launch(lock, context, [&] { return launched_ + 1 == number; });
  }
  if (!done.is_ok()) return end(done);
  done = launch();
  {
    const std::lock_guard lock(mutex_);
    launched_ = number;
    launching_.reset();
  }
  changed_.notify_all();
  return done.is_ok() ? done : end(done);
}

void P2pChannels::abort(const Status& why) {
  const std::lock_guard lock(mutex_);
  for (const auto& [ranks, channel] : channels_) channel->group().abort(why);
}

std::shared_ptr<P2pChannel> P2pChannels::between(Rank from, Rank to, int device) {
  const std::lock_guard lock(mutex_);
  const auto known = channels_.find({from, to});
  if (known != channels_.end())
    return known->second->device() == device && !known->second->has_ended() ? known->second : nullptr;
  if (channels_.size() >= kMost) return nullptr;
  const Result<Communicator*> group = runtime_.make_channel(from, to);
  if (!group.is_ok()) return nullptr;
  return channels_[{from, to}] = std::make_shared<P2pChannel>(*group.value(), device);
}

}  // namespace pc
