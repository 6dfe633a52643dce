// The runs of one group, in issue order. They share one scratch memory and often the caller's arrays, so a run posts
// only when all earlier runs have ended; whoever waits for a later run first drives the earlier ones. One thread at a
// time holds the baton and drives; the others sleep until it is free or their own wait ends.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/plan_run.h"

namespace pc {

// Thread-safety: all methods.
class GroupLine {
 public:
  GroupLine(Transport& transport, Reactor& reactor, uint32_t group)
      : transport_(transport),
        reactor_(reactor),
        group_(group) {}
  uint32_t group() const { return group_; }

  // Puts a run of this last in line, and starts it if it is also the first. Once in line it is the caller's to release().
  Status enter(const Request& request, const Launch& launch, PlanCache& plans, std::unique_ptr<PlanRun>& run);
  Status wait(PlanRun& run, const WaitContext& context);  // drives the line until `run` has ended
  // The same, but leaves it as it is when the context ends.
  WaitEnd drive(PlanRun& run, const WaitContext& context);
  // Goes on with the first runs as far as that is possible without waiting. Nothing, if somebody drives them: he does so.
  void progress();
  void ring(PlanRun& run, CompletionSink* bell, uint64_t token);  // Work::ring
  void release(std::unique_ptr<PlanRun> run);  // withdraws it if it has not ended; keeps it for reuse
  // The call of this number ends with `why`, if it has not ended; what comes for it from peers is discarded.
  void cancel(uint64_t sequence, const Status& why);
  void abort(const Status& why);  // ends every run, now and later

 private:
  using Lock = std::unique_lock<std::mutex>;
  void start_first(Lock& lock);                           // mutex_ held, baton free
  void take_baton();                                      // mutex_ held
  void drop_baton();                                      // mutex_ held: removes what has ended
  bool driven(const PlanRun& run) const;                  // mutex_ held
  void end(Lock& lock, PlanRun& run, const Status& why);  // afterwards it has ended
  std::unique_ptr<PlanRun> take_idle(const Algorithm& algorithm, const Shape& shape);  // mutex_ held; or null
  void keep(std::unique_ptr<PlanRun> run);  // mutex_ held: to be used again
  void discard_due();                       // mutex_ held
  bool ask(const std::function<bool()>& interrupted);
  void ring_if_due();  // mutex_ held
  WaitEnd drive(Lock& lock, const PlanRun& run, const WaitContext& context);
  WaitEnd drive_first(Lock& lock, const PlanRun& run, const WaitContext& context);  // until `run` has ended
  WaitEnd wait_for_baton(Lock& lock, const WaitContext& context);

  Transport& transport_;
  Reactor& reactor_;
  const uint32_t group_;
  std::mutex mutex_;  // guards what follows, and the state of runs that have not started
  std::condition_variable baton_free_;
  bool driven_ = false;    // somebody holds the baton: the first run is theirs
  bool in_probe_ = false;  // ... and is inside its interrupt probe, where it touches nothing of ours
  std::deque<PlanRun*> runs_;
  std::vector<std::unique_ptr<PlanRun>> idle_;  // the one used last is at the end
  std::unique_ptr<PlanRun>
      dropped_;  // the first run, if its owner let it go while another frame still drives it
  std::vector<uint64_t> skipped_;  // numbers that ended before their turn: to discard when it comes
  Status aborted_;
  Scratch scratch_;  // the baton's
};

}  // namespace pc
