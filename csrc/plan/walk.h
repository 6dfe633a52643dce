// Walks the plans of all ranks to their end without a transport: finds which message feeds which
// receive, when each message arrives in the model and, on request, moves data. predict(),
// simulate(), draw() and check_one_pass() share this.
//
// The walk follows one rank until the rank waits for a message, then the rank that was unblocked
// last, and so on. It visits a rank a few times, not once per step, so a plan can be built for a
// visit and dropped afterwards (source.h). In a ring it visits every rank three times: rank k
// advances k rounds, then n more rounds, then to its end. Between visits the walk keeps the
// position in each lane, the messages in flight, and the data.
//
// Each rank has one port for sending and one for receiving. A step takes its port when the walk
// reaches the step. With one lane per rank this is the order of the plan, so times do not depend on
// the order of the walk. Several lanes compete for ports, so plans with several lanes are walked in
// order of time if all of them are kept in memory. Otherwise their times are approximate, but their
// results and counts are still exact.
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
  // With `cells`, the walk also moves and adds data and checks weights. It calls `trace` for every
  // step that it takes, with the round of messages to which the step belongs.
  Walk(PlanSource& plans, uint64_t nbytes, const LinkModel& model, Cells* cells = nullptr, Trace trace = {});
  // Fails if the plans do not match each other, never end, or contradict their weights.
  Result<Cost> to_the_end();
  // Returns true if every plain receive into the output of an allreduce got the whole sum: see
  // local_hazards.cc.
  bool receives_totals() const { return receives_totals_; }

 private:
  static constexpr double kForever = std::numeric_limits<double>::infinity();
  struct Message {
    double at = 0;      // when its first byte arrives
    uint64_t word = 0;  // the value of its first chunk; those of further chunks are in Stream::more
    uint32_t step = 0;  // the sender's step
    uint32_t round = 0;
    Chunks moved;
  };
  struct Stream {  // from one rank to another, in one lane
    std::vector<Message> queue;
    std::vector<uint64_t> more;
    std::size_t head = 0, more_head = 0;
    bool empty() const { return head == queue.size(); }
  };
  struct Lane {
    uint32_t at = 0;     // index of the next step; the number of steps if there is none
    uint32_t round = 0;  // number of messages on the longest chain before this point
    double ready = 0;    // when it can continue
    Rank waits_for = -1;
    struct End {  // the last stream used in this direction
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
    std::vector<Done> done;  // [step]; empty if no step has an `after`
    Ports ports;
    double wakeup = kForever;  // when walking in order of time: the earliest entry in wakeups_
    bool queued = true;
    bool waits_for_reader = false;  // a step waits, by `after`, for a send that has not been received
  };
  struct Visit {  // what most steps need, in one place, because a walk takes hundreds of millions of steps
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
  // Returns when the lane's next step can begin, or kForever if that is not known yet.
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
  uint64_t chunk_nbytes_ = 0, larger_chunks_ = 0;  // the first `larger_chunks_` chunks have one byte more
  bool by_time_ = false, receives_totals_ = true;
  std::vector<State> states_;
  std::unordered_map<uint64_t, Stream> streams_;  // references stay valid on insertion
  std::vector<Message> spare_;                    // memory for the next stream that needs some
  std::vector<Rank> next_;                        // a stack: the rank unblocked last is visited first
  std::priority_queue<Wakeup, std::vector<Wakeup>, std::greater<>> wakeups_;
  uint64_t taken_ = 0;
  Cost cost_;
};

}  // namespace pc
