// Walks the plans of all ranks to their end without a transport: which message feeds which receive, when it arrives on paper,
// and, if asked, with data. What predict(), simulate(), draw() and check_one_pass() share.
//
// One rank is walked until it waits for a message, then the one that its last message set free, and so on: a rank is visited
// a few times, not once per step, so its plan can be built for the visit and dropped afterwards (source.h). In a ring the news
// goes around three times: rank k comes k rounds far, then n rounds further, then to its end. What is kept between visits is
// a place in each lane, the messages on their way, and the data.
//
// Ports are taken in the order in which the walk comes to the steps. With one lane per rank that is the order of the plan, so
// times do not depend on the order of the walk. Lanes compete, so plans with lanes are walked in the order of time
// as long as they are all kept; beyond that their times are approximate, their results and counts never.
#pragma once

#include <functional>
#include <limits>
#include <queue>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "plan/cells.h"
#include "plan/link_model.h"
#include "plan/source.h"

namespace pc {

class Walk {
 public:
  using Trace = std::function<void(Rank rank, uint32_t step, uint32_t round)>;
  // `cells`: moves and adds data as well, checking weights. `trace`: hears of every step when it is taken, and which
  // round of messages it belongs to.
  Walk(PlanSource& plans, uint64_t nbytes, const LinkModel& model, Cells* cells = nullptr, Trace trace = {});
  // Fails where the plans do not fit together, never end, or add what their weights do not say.
  Result<Cost> to_the_end();
  // True if every plain receive into the output of an allreduce has got the whole sum: see local_hazards.cc.
  bool receives_totals() const { return receives_totals_; }

 private:
  static constexpr double kForever = std::numeric_limits<double>::infinity();
  struct Message {
    double at = 0;      // when its first byte arrives
    uint64_t word = 0;  // of its first chunk; others in Stream::more
    uint32_t step = 0;  // the sender's
    uint32_t round = 0;
    Chunks moved;
  };
  struct Stream {  // from one rank to another in one lane
    std::vector<Message> queue;
    std::vector<uint64_t> more;
    std::size_t head = 0, more_head = 0;
    bool empty() const { return head == queue.size(); }
  };
  struct Lane {
    uint32_t at = 0;     // the next step, or the number of steps
    uint32_t round = 0;  // messages behind it, on the longest chain
    double ready = 0;    // when it can go on
    Rank waits_for = -1;
    struct End {  // the last stream that was used in that direction
      Rank peer = -1;
      Stream* stream = nullptr;
    } in, out;
  };
  struct Done {
    double at = kForever;
    uint32_t round = 0;
  };
  struct Ports {
    double out_free = 0, in_free = 0;
    uint64_t sent_nbytes = 0;
  };
  struct State {  // of one rank
    std::vector<Lane> lanes;
    std::vector<Done> done;  // [step], if any step has an `after`
    Ports ports;
    double wakeup = kForever;  // in the order of time: the earliest entry of wakeups_
    bool queued = true;
    bool waits_for_reader = false;  // an `after` names a send that has not been received
  };
  struct Visit {  // what most steps need, at hand: a walk takes hundreds of millions
    const Plan& plan;
    State& state;
    Cells::Memory* memory;
    std::span<const Step> steps = plan.steps;
    Rank rank = plan.shape.rank;
    Ports ports = state.ports;
  };
  using Wakeup = std::pair<double, Rank>;

  Status visit(Rank rank, double until);
  void begin(const Plan& plan, State& state);
  Status walk_only_lane(Visit visit);
  Lane* first_lane(Visit& visit, double& now);
  // When the lane's next step can begin; kForever: not yet.
  double begins(Visit& visit, Lane& lane);
  bool after_is_done(const Plan& plan, State& state, uint32_t step);
  Status take(Visit& visit, Lane& lane, double now);
  void send(Visit& visit, const Step& step, Lane& lane, double now);
  Status receive(Visit& visit, const Step& step, Lane& lane, double now);
  Status combine(const Visit& visit, const Step& step, uint32_t chunk, uint64_t operand);
  Status run_locally(const Visit& visit, const Step& step, Lane& lane, double now);
  void pop(Stream& messages);
  void wake(Rank rank, double at);
  int64_t nbytes_of(Chunks chunks) const;
  Status all_ended();

  PlanSource& plans_;
  const LinkModel& model_;
  Cells* cells_;
  Trace trace_;
  uint64_t chunk_nbytes_ = 0, larger_chunks_ = 0;  // the first ones have a byte more
  bool by_time_ = false, receives_totals_ = true;
  std::vector<State> states_;
  std::unordered_map<uint64_t, Stream> streams_;  // they stay where they are
  std::vector<Message> spare_;                    // memory for the next stream
  std::vector<Rank> next_;                        // a stack: who has just been set free comes first
  std::priority_queue<Wakeup, std::vector<Wakeup>, std::greater<>> wakeups_;
  uint64_t taken_ = 0;
  Cost cost_;
};

}  // namespace pc
