// The thread that drives calls for which no thread waits. It starts with the first asynchronous
// call of its rank, and sleeps when idle: on a condition if there are no unfinished calls,
// otherwise in the reactor, where a thread that waits in a call of its own polls in its place.
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

  // Once the thread runs, adding cannot fail, so start it before a call takes its number.
  Status start();
  std::shared_ptr<AsyncWork> add(HostWork::Start start);
  // Complete it when the group of some calls has ended: those calls end as well.
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
  static constexpr uint64_t kAll = 0, kWake = ~uint64_t{0};  // tokens: these two, or the number of a call
  void run();
  bool wait_until_needed();
  TimePoint next_deadline() const;
  void listen();  // handles the notifications
  void end_overdue();
  void look_around();
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
