// One collective through shared memory, as a state machine that never blocks. It joins the group,
// and runs one of the algorithms as far as it can without waiting. It waits for words in shared
// memory, or for plans that run between hosts.
#pragma once

#include <string>
#include <vector>

#include "engine/run.h"
#include "engine/shm/exchange.h"
#include "engine/shm/rounds.h"
#include "engine/shm/small_call.h"

namespace pc::shm {

class SharedRun : public Run {
 public:
  SharedRun(Host& host, Group& group, Waiter& waiter)
      : waiter_(waiter),
        exchange_{host, group, request_, launch_},
        led_(exchange_),
        rounds_(exchange_) {}
  ~SharedRun() override;
  SharedRun(const SharedRun&) = delete;
  SharedRun& operator=(const SharedRun&) = delete;

  // Must not be called while the run is in progress. Does not access the group, because another run
  // may be using it. `inter_domain` is the exchange of rounds with other hosts; it is not owned and
  // must outlive the call.
  void prepare(const Request& request, const Launch& launch, const Division& division = {},
               InterDomainExchange* inter_domain = nullptr);
  void start(Scratch& scratch) override;
  void advance() override;
  void end(Status result) override;
  WaitEnd wait_to_advance(Reactor& reactor, const WaitContext& context) override;
  // Like start(), but called with the queue's lock held: makes progress for as long as it pays to
  // stay awake. The caller reports late mismatches afterwards, by report_late_mismatches().
  void start_at_once();
  static void report_late_mismatches(const Launch& launch, const std::vector<LateMismatch>& late_mismatches);
  std::string where() const override;
  Rank waits_for() const override { return waits_for_.load(std::memory_order_relaxed); }
  // a completion with kWake reports that progress is possible
  CompletionSink* notifier() { return &queue_; }
  static constexpr uint64_t kWake = kWakeToken;

 private:
  bool ready();  // returns whether advance() may have something to do
  void go_on();
  bool step();  // returns whether the call is done
  bool announce();
  bool leads() const { return exchange_.traffic.leader() == launch_.rank; }
  void progress_released() override;
  void progress_held() override;

  Waiter& waiter_;  // the group's
  bool announced_ = false;
  bool listed_ = false;  // whether queue_ is in the host's list of waiting queues
  std::atomic<Rank> waits_for_{-1};
  std::atomic<bool> begun_{false}, waits_inter_domain_{false};
  Exchange exchange_;
  LeaderCall led_;
  Rounds rounds_;
};

}  // namespace pc::shm
