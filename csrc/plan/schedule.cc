#include <deque>
#include <map>
#include <tuple>

#include "plan/analysis.h"

namespace pc {
namespace {

using Stream = std::tuple<Rank, Rank, uint8_t>;  // from, to, lane: messages of one stream arrive in order

struct Ends {
  std::vector<uint32_t> sends, receives;
};

Status compare_ends(Plans plans, const Stream& stream, const Ends& ends) {
  const auto [from, to, lane] = stream;
  const Plan& sender = plans[static_cast<std::size_t>(from)];
  const Plan& receiver = plans[static_cast<std::size_t>(to)];
  const std::size_t both = std::min(ends.sends.size(), ends.receives.size());
  for (std::size_t k = 0; k < both; ++k) {
    if (moved_chunks(sender.steps[ends.sends[k]]) == moved_chunks(receiver.steps[ends.receives[k]])) continue;
    return step_error(receiver, ends.receives[k],
                      "gets other chunks than it names: rank " + std::to_string(from) +
                          " sends them in its " + step_text(sender, ends.sends[k]))
        .with_peer(from);
  }
  if (ends.sends.size() > both) {
    return step_error(sender, ends.sends[both], "is never received").with_peer(to);
  }
  if (ends.receives.size() > both) {
    return step_error(receiver, ends.receives[both], "waits for a message that is never sent")
        .with_peer(from);
  }
  return Status::ok();
}

Status match(Plans plans, Schedule& schedule) {
  std::map<Stream, Ends> streams;
  for (const Plan& plan : plans) {
    schedule.partner.emplace_back(plan.steps.size(), 0);
    for (uint32_t i = 0; i < plan.steps.size(); ++i) {
      const Step& step = plan.steps[i];
      if (step.kind == StepKind::kSend) streams[{plan.shape.rank, step.peer, step.lane}].sends.push_back(i);
      if (is_receive(step.kind)) streams[{step.peer, plan.shape.rank, step.lane}].receives.push_back(i);
    }
  }
  for (const auto& [stream, ends] : streams) {
    PC_TRY(compare_ends(plans, stream, ends));
    const auto [from, to, lane] = stream;
    for (std::size_t k = 0; k < ends.sends.size(); ++k) {
      schedule.partner[static_cast<std::size_t>(from)][ends.sends[k]] = ends.receives[k];
      schedule.partner[static_cast<std::size_t>(to)][ends.receives[k]] = ends.sends[k];
    }
  }
  return Status::ok();
}

// Runs all plans, one step at a time and without data, until they end or get stuck.
class Run {
 public:
  Run(Plans plans, Schedule& schedule) : plans_(plans), schedule_(schedule) {
    for (const Plan& plan : plans) {
      state_.emplace_back(plan.steps.size(), kWaiting);
      lanes_.emplace_back(plan.lanes);
      for (uint32_t i = 0; i < plan.steps.size(); ++i) lanes_.back()[plan.steps[i].lane].push_back(i);
      ready_.push_back(plan.shape.rank);
    }
  }

  Status to_the_end() {
    while (!ready_.empty()) {
      const Rank rank = ready_.front();
      ready_.pop_front();
      for (std::deque<uint32_t>& lane : lanes_[index(rank)]) {
        while (!lane.empty() && advance(rank, lane.front())) lane.pop_front();
      }
    }
    for (const Plan& plan : plans_) {
      for (const std::deque<uint32_t>& lane : lanes_[index(plan.shape.rank)]) {
        if (!lane.empty()) return stuck(plan.shape.rank, lane.front());
      }
    }
    return Status::ok();
  }

 private:
  enum State : uint8_t { kWaiting, kPosted, kComplete };
  static std::size_t index(Rank rank) { return static_cast<std::size_t>(rank); }
  const Step& step_at(StepRef at) const { return plans_[index(at.rank)].steps[at.index]; }
  State& state(Rank rank, uint32_t step) { return state_[index(rank)][step]; }

  bool may_begin(Rank rank, const Step& step) {
    return step.after == 0 || state(rank, step.after - 1) == kComplete;
  }

  // Returns true if the lane can continue past this step.
  bool advance(Rank rank, uint32_t i) {
    const Step& step = step_at({rank, i});
    if (!may_begin(rank, step)) return false;
    if (step.kind == StepKind::kSend) {
      state(rank, i) = kPosted;
    } else {
      if (is_receive(step.kind)) {
        State& send = state(step.peer, schedule_.partner[index(rank)][i]);
        if (send != kPosted) return false;
        send = kComplete;
      }
      state(rank, i) = kComplete;
      ready_.push_back(rank);  // other lanes of this rank may wait for this step
    }
    if (is_message(step.kind)) ready_.push_back(step.peer);
    schedule_.order.push_back({rank, i});
    return true;
  }

  // Returns the stuck step for which the stuck step `at` waits.
  StepRef waits_for(StepRef at) {
    const Step& step = step_at(at);
    if (!may_begin(at.rank, step)) {
      const StepRef needed{at.rank, step.after - 1};
      if (state(needed.rank, needed.index) != kPosted) return front_of_lane(needed);
      return front_of_lane({step_at(needed).peer, schedule_.partner[index(at.rank)][needed.index]});
    }
    return front_of_lane({step.peer, schedule_.partner[index(at.rank)][at.index]});
  }
  StepRef front_of_lane(StepRef at) const {
    return {at.rank, lanes_[index(at.rank)][step_at(at).lane].front()};
  }

  Status stuck(Rank rank, uint32_t i) {
    // Every stuck step waits for a stuck step, so following them for long enough ends in a circle.
    // The error names the circle.
    std::size_t enough = 0;
    for (const Plan& plan : plans_) enough += plan.lanes;
    StepRef at{rank, i};
    for (std::size_t k = 0; k < enough; ++k) at = waits_for(at);
    const StepRef first = at;
    std::string what = "never ends";
    do {
      at = waits_for(at);
      what += ": it waits for rank " + std::to_string(at.rank) + "'s " +
              step_text(plans_[index(at.rank)], at.index);
    } while (at.rank != first.rank || at.index != first.index);
    return step_error(plans_[index(first.rank)], first.index, what + ", and so on in a circle (deadlock)");
  }

  Plans plans_;
  Schedule& schedule_;
  std::vector<std::vector<State>> state_;                 // [rank][step]
  std::vector<std::vector<std::deque<uint32_t>>> lanes_;  // [rank][lane]: steps left to do
  std::deque<Rank> ready_;
};

}  // namespace

Result<Schedule> make_schedule(Plans plans) {
  Schedule schedule;
  PC_TRY(match(plans, schedule));
  PC_TRY(Run(plans, schedule).to_the_end());
  return schedule;
}

}  // namespace pc
