// One rank of a simulated world: its program, its part in the model of the data plane, and the host
// of its control plane, which checks all that the plane reports against the truth.
#pragma once

#include "simulation/world.h"

namespace pc::simulation {

inline std::string site_of(Rank rank) { return "site of rank " + std::to_string(rank); }
inline std::string place_of(Rank rank) { return "place of rank " + std::to_string(rank); }

class SimulatedRank final : public ControlHost {
 public:
  SimulatedRank(World& world, Rank me);
  void start() { next_step(); }

  // ---- events
  void arrived(Rank from, std::span<const std::byte> bytes);
  void lost(Rank peer, const std::string& cause);
  void interrupt();
  void stop(Time lasts);
  void finish(const CallId& call);  // from the data plane: the call is complete here
  // from the data plane: a message of another call has arrived
  void see_foreign_call(const CallId& call, Rank made_by);
  void send_goodbye();
  void run(const std::function<void()>& what);  // runs it now, or when the rank is no longer stopped

  // ---- state
  bool dead = false, gone = false, is_excluded = false;
  bool was_cut = false;   // lost a connection while it lived
  bool was_hurt = false;  // cut, stopped, dead or gone: other ranks may not have been notified
  bool lives() const { return !dead && !gone && !is_excluded; }
  bool is_out(uint32_t group) const { return out_.contains(group); }
  bool knows_end_of(Rank peer) const { return ended_peers_.contains(peer); }
  const std::set<uint64_t>& good_barriers(uint32_t group) { return good_barriers_[group]; }
  std::string unsettled() const;  // returns what the rank still waits for; empty if nothing
  std::optional<CallId> running() const { return running_; }

  // ---- ControlHost
  std::span<const Rank> members(uint32_t group) override;
  CallReport report(const CallId& call, bool find_where) override;
  void send(Rank peer, const ControlMessage& message) override;
  void end_call(const CallId& call, const CallEnd& why) override;
  void failure_report(const CallId& call, const CallEnd& why, std::vector<RankStatus> statuses) override;
  void surveyed(const CallId& call, std::vector<RankStatus> statuses) override;
  void peer_died(Rank peer, const std::string& cause) override;
  void peer_exited(Rank peer) override;
  void excluded(Rank by, const std::string& cause) override;

 private:
  using State = CallReport::State;
  // The program.
  void next_step();
  void begin(std::size_t step);
  void wait(const CallId& call);
  void ask_what_it_does(uint32_t group);
  void probe(const CallId& call);
  void go_on_after(const CallId& call);
  void give_up(const CallId& call, Code code, Rank by, const std::string& text);
  void leave();
  void out_of(uint32_t group);
  // The data plane.
  void made(const CallId& call);
  bool receives_from(const CallId& call, Rank receiver, Rank sender);
  Rank waits_for(const CallId& call);
  // The checks of the judge.
  void check_cause(const CallId& call, const CallEnd& why);
  void check_failure(const CallId& call, const CallEnd& why);
  void check_report(const CallId& call, const CallEnd& why, const std::vector<RankStatus>& statuses);
  void check_statuses(const CallId& call, const std::vector<RankStatus>& statuses);
  void check_death(Rank peer, const std::string& cause);
  void check_exit(Rank peer);
  void check_exclusion(Rank by, const std::string& cause);

  Entry& mine(const CallId& call) { return world_.book[call].ranks[me_]; }
  void after_plane();  // plans the next tick

  World& world_;
  const Rank me_;
  ControlPlane plane_;
  std::map<Rank, ControlReader> readers_;
  std::optional<TimePoint> tick_planned_;
  std::size_t step_ = 0;
  std::map<uint32_t, uint64_t> sequence_;
  std::map<uint32_t, std::set<uint64_t>> good_barriers_;  // begun after the last fault
  std::set<uint32_t> known_groups_{kWorldGroup}, out_;
  std::set<Rank> ended_peers_;
  std::optional<CallId> running_, awaited_report_;
  std::map<CallId, TimePoint> ended_;  // still without a failure report
  std::map<CallId, CallEnd> ended_early_;
  std::set<CallId> judged_, surveys_;
  // where the rank was when a peer requested it; empty while it is being found
  std::map<CallId, std::string> places_;
  bool leaving_ = false, stopped_ = false;
  std::vector<std::function<void()>> backlog_;
};

}  // namespace pc::simulation
