// The progress thread, which drives calls for which no thread waits. It starts with the first
// asynchronous call of its rank. Without unfinished calls it sleeps on a condition variable.
// Otherwise it sleeps in the reactor and polls it, except while another thread waits in the reactor
// and polls.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "operation/host_work.h"
#include "transport/reactor.h"

namespace pc {

// Thread-safety: all methods.
class Progress final : public HostWork::Owner {
 public:
  explicit Progress(Reactor& reactor) : reactor_(reactor) {}
  ~Progress() { stop(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Starts the thread, after which add() cannot fail. Call start() before a call takes its number.
  Status start();
  std::shared_ptr<AsyncWork> add(HostWork::Start start);
  // A group completes this sink when it ends, so that its calls end as well.
  CompletionSink* group_ends() { return &group_ends_; }
  // Ends the thread, and every call for which no thread waits. The calls' groups must have ended.
  void stop();

  // These are for HostWork.
  CompletionSink* notifier() override { return &notifier_; }
  void forget(uint64_t id) override;
  bool stopping() const override { return stopping_.load(); }

 private:
  class GroupEnds final : public CompletionSink {
   public:
    explicit GroupEnds(Progress& progress) : progress_(progress) {}
    void complete(Completion&& /*completion*/) override { progress_.look_at_all(); }

   private:
    Progress& progress_;
  };
  void look_at_all();
  // tokens of notifier_; any other token is the id of a call
  static constexpr uint64_t kAll = 0, kWake = ~uint64_t{0};
  void run();
  bool wait_until_needed();
  TimePoint next_deadline() const;
  void listen();  // handles the notifications
  void end_overdue();
  void poll_all();
  std::shared_ptr<HostWork> find(uint64_t id) const;

  Reactor& reactor_;
  CompletionQueue notifier_;  // only the progress thread takes from it
  GroupEnds group_ends_{*this};

  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable needed_;
  std::map<uint64_t, std::shared_ptr<HostWork>> calls_;  // unfinished calls, in the order in which they began
  std::set<std::pair<TimePoint, uint64_t>> due_;         // their deadlines
  uint64_t next_id_ = kAll + 1;
  std::atomic<bool> stopping_{false};  // set while the lock is held
  std::thread thread_;
};

}  // namespace pc
