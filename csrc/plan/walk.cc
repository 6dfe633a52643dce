#include "plan/walk.h"

#include <algorithm>
#include <string>

#include "plan/analysis.h"

namespace pc {
namespace {

std::size_t index(Rank rank) { return static_cast<std::size_t>(rank); }
uint64_t key(Rank from, Rank to, uint8_t lane) {
  return static_cast<uint64_t>(from) << 32 | static_cast<uint64_t>(to) << 8 | lane;
}

inline uint32_t next_in_lane(const Plan& plan, uint8_t lane, std::size_t from) {
  if (plan.lanes > 1) {
    while (from < plan.steps.size() && plan.steps[from].lane != lane) ++from;
  }
  return static_cast<uint32_t>(from);
}

bool uses_after(const Plan& plan) {
  return std::any_of(plan.steps.begin(), plan.steps.end(), [](const Step& step) { return step.after > 0; });
}

Status wrong_weight(const Plan& plan, const Step& step, std::string_view weight, uint16_t says,
                    std::string_view what, uint64_t holds) {
  return step_error(plan, static_cast<uint32_t>(&step - plan.steps.data()),
                    "says " + std::string(weight) + " " + std::to_string(says) + ", but its " +
                        std::string(what) + " holds " + std::to_string(Cells::count(holds)) +
                        " contributions");
}

}  // namespace

Walk::Walk(PlanSource& plans, uint64_t nbytes, const LinkModel& model, Cells* cells, Trace trace)
    : plans_(plans),
      model_(model),
      cells_(cells),
      trace_(std::move(trace)),
      states_(index(plans.size())) {
  const Plan& any = plans.of(plans.size() / 2);
  // an alltoall names the chunks of all ranks' arrays, so `chunks` is size * size
  const bool is_square = any.shape.collective == Collective::kAlltoall;
  const uint64_t pieces = is_square ? static_cast<uint64_t>(any.shape.size) : any.chunks;
  chunk_nbytes_ = pieces == 0 ? 0 : nbytes / pieces;
  larger_chunks_ = pieces == 0 || is_square ? 0 : nbytes % pieces;
  by_time_ = plans.keeps_all() && any.lanes > 1;
  cost_.least_nbytes = ~uint64_t{0};
  for (Rank rank = plans.size(); rank-- > 0;) wake(rank, 0);
}

Result<Cost> Walk::to_the_end() {
  while (!wakeups_.empty()) {
    const auto [at, rank] = wakeups_.top();
    wakeups_.pop();
    State& state = states_[index(rank)];
    if (state.wakeup != at) continue;  // already visited, or queued for an earlier time
    state.wakeup = kForever;
    PC_TRY(visit(rank, at));
  }
  while (!next_.empty()) {
    const Rank rank = next_.back();
    next_.pop_back();
    if (!states_[index(rank)].queued) continue;
    states_[index(rank)].queued = false;
    PC_TRY(visit(rank, kForever));
  }
  PC_TRY(all_ended());
  for (const State& state : states_) {
    cost_.least_nbytes = std::min(cost_.least_nbytes, state.ports.sent_nbytes);
    cost_.most_nbytes = std::max(cost_.most_nbytes, state.ports.sent_nbytes);
    for (const Lane& lane : state.lanes) {
      cost_.rounds = std::max(cost_.rounds, lane.round);
      cost_.seconds = std::max(cost_.seconds, lane.ready);
    }
    cost_.seconds = std::max(cost_.seconds, state.ports.out_free);
  }
  return cost_;
}

void Walk::wake(Rank rank, double at) {
  State& state = states_[index(rank)];
  if (!by_time_) {
    state.queued = true;
    next_.push_back(rank);
  } else if (at < state.wakeup) {
    state.wakeup = at;
    wakeups_.emplace(at, rank);
  }
}

void Walk::begin(const Plan& plan, State& state) {
  state.lanes.resize(plan.lanes);
  for (uint8_t lane = 0; lane < plan.lanes; ++lane) state.lanes[lane].at = next_in_lane(plan, lane, 0);
  if (uses_after(plan)) state.done.resize(plan.steps.size());
  cost_.steps += plan.steps.size();
  if (plan.lanes > 1 && !by_time_) cost_.exact = false;
}

// Takes steps in order of time, as long as they can begin at or before `until`.
Status Walk::visit(Rank rank, double until) {
  const Plan& plan = plans_.of(rank);
  State& state = states_[index(rank)];
  if (state.lanes.empty()) begin(plan, state);
  Visit visit{plan, state, cells_ != nullptr ? &cells_->of(plan) : nullptr};
  if (state.lanes.size() == 1 && !by_time_) return walk_only_lane(visit);
  double now = 0;
  while (Lane* lane = first_lane(visit, now)) {
    if (now > until) {
      wake(rank, now);
      break;
    }
    PC_TRY(take(visit, *lane, now));
  }
  state.ports = visit.ports;
  return Status::ok();
}

// With a single lane, all values that one step passes to the next stay in registers.
Status Walk::walk_only_lane(Visit visit) {
  Lane lane = visit.state.lanes.front();
  while (lane.at < visit.steps.size()) {
    const double now = begins(visit, lane);
    if (now == kForever) break;
    PC_TRY(take(visit, lane, now));
  }
  visit.state.lanes.front() = lane;
  visit.state.ports = visit.ports;
  return Status::ok();
}

// Returns the lane that can continue first, and its time in `now`.
Walk::Lane* Walk::first_lane(Visit& visit, double& now) {
  Lane* first = nullptr;
  now = kForever;
  for (Lane& lane : visit.state.lanes) {
    if (lane.at >= visit.steps.size()) continue;
    const double at = begins(visit, lane);
    if (at >= now) continue;
    first = &lane;
    now = at;
  }
  return first;
}

// The functions below are inlined into the loops of visit() and walk_only_lane(). A call per step
// would cost as much as the step, because the state that the step changes would go through memory.
// Rare branches are marked, so that the common path keeps its values in registers.

[[gnu::always_inline]] inline double Walk::begins(Visit& visit, Lane& lane) {
  const Step& step = visit.steps[lane.at];
  double at = lane.ready;
  if (step.after > 0) [[unlikely]] {
    if (!after_is_done(visit.plan, visit.state, step.after - 1)) return kForever;
    at = std::max(at, visit.state.done[step.after - 1].at);
  }
  if (!is_receive(step.kind)) return at;
  if (lane.in.peer != step.peer) [[unlikely]]
    lane.in = {step.peer, &streams_[key(step.peer, visit.rank, step.lane)]};
  const Stream& messages = *lane.in.stream;
  lane.waits_for = messages.empty() ? step.peer : -1;
  return messages.empty() ? kForever : std::max(at, messages.queue[messages.head].at);
}

// As in check(), a send is complete when it has been received, which is the worst case.
bool Walk::after_is_done(const Plan& plan, State& state, uint32_t step) {
  const Step& needed = plan.steps[step];
  if (state.done[step].at == kForever) return false;
  if (needed.kind != StepKind::kSend) return true;
  const auto found = streams_.find(key(plan.shape.rank, needed.peer, needed.lane));
  const bool is_read =
      found == streams_.end() || found->second.empty() || found->second.queue[found->second.head].step > step;
  if (!is_read) state.waits_for_reader = true;
  return is_read;
}

[[gnu::always_inline]] inline Status Walk::take(Visit& visit, Lane& lane, double now) {
  const uint32_t at = lane.at;
  const Step& step = visit.steps[at];
  if (step.after > 0) lane.round = std::max(lane.round, visit.state.done[step.after - 1].round);
  if (step.kind == StepKind::kSend) {
    send(visit, step, lane, now);
  } else if (is_receive(step.kind)) {
    PC_TRY(receive(visit, step, lane, now));
  } else {
    PC_TRY(run_locally(visit, step, lane, now));
  }
  if (!visit.state.done.empty()) {
    visit.state.done[at] = {step.kind == StepKind::kSend ? visit.ports.out_free : lane.ready, lane.round};
  }
  lane.at = next_in_lane(visit.plan, step.lane, std::size_t{at} + 1);
  ++taken_;
  return Status::ok();
}

[[gnu::always_inline]] inline void Walk::send(Visit& visit, const Step& step, Lane& lane, double now) {
  Ports& ports = visit.ports;
  const Chunks moved = moved_chunks(step);
  const int64_t nbytes = nbytes_of(moved);  // signed: a processor converts it to double in one instruction
  const double start = std::max(now, ports.out_free) + model_.overhead_s;
  ports.out_free = start + static_cast<double>(nbytes) * model_.seconds_per_byte;
  ports.sent_nbytes += static_cast<uint64_t>(nbytes);
  lane.ready = now;
  ++cost_.messages;
  if (trace_) [[unlikely]]
    trace_(visit.rank, lane.at, lane.round);

  if (lane.out.peer != step.peer) [[unlikely]]
    lane.out = {step.peer, &streams_[key(visit.rank, step.peer, step.lane)]};
  Stream& messages = *lane.out.stream;
  if (messages.queue.capacity() == 0) messages.queue.swap(spare_);
  // written in place, because a copy would cost as much as the rest of send()
  Message& message = messages.queue.emplace_back();
  message.at = start + model_.latency_s;
  message.step = lane.at;
  message.round = lane.round;
  message.moved = moved;
  if (visit.memory != nullptr && step.src.count > 0) {
    message.word = visit.memory->read(step.src_area, step.src.first);
    for (uint32_t c = 1; c < step.src.count; ++c)
      messages.more.push_back(visit.memory->read(step.src_area, step.src.first + c));
  }
  std::vector<Lane>& theirs = states_[index(step.peer)].lanes;
  if (step.lane >= theirs.size() || theirs[step.lane].waits_for != visit.rank) return;
  theirs[step.lane].waits_for = -1;
  wake(step.peer, std::max(message.at, theirs[step.lane].ready));
}

[[gnu::always_inline]] inline Status Walk::receive(Visit& visit, const Step& step, Lane& lane, double now) {
  Stream& messages = *lane.in.stream;                      // looked up by begins()
  const Message& message = messages.queue[messages.head];  // valid until pop()
  if (message.moved != moved_chunks(step))
    return step_error(visit.plan, lane.at, "gets other chunks than it names").with_peer(step.peer);
  if (trace_) [[unlikely]]
    trace_(visit.rank, lane.at, message.round);
  const double nbytes = static_cast<double>(nbytes_of(message.moved));
  // does not depend on `now`: the data may have arrived before the receive was posted
  const double arrived =
      std::max(message.at, visit.ports.in_free) + nbytes * model_.seconds_per_byte + model_.overhead_s;
  visit.ports.in_free = arrived;
  lane.ready = std::max(now, arrived);
  if (step.kind == StepKind::kRecvReduce) lane.ready += nbytes * model_.reduce_seconds_per_byte;
  lane.round = std::max(lane.round, message.round + 1);
  if (visit.memory != nullptr && step.dst.count > 0) {
    PC_TRY(combine(visit, step, 0, message.word));
    for (uint32_t c = 1; c < step.dst.count; ++c)
      PC_TRY(combine(visit, step, c, messages.more[messages.more_head++]));
  }
  pop(messages);
  State& sender = states_[index(step.peer)];
  if (sender.waits_for_reader) {
    sender.waits_for_reader = false;
    wake(step.peer, lane.ready);
  }
  return Status::ok();
}

[[gnu::always_inline]] inline Status Walk::combine(const Visit& visit, const Step& step, uint32_t chunk,
                                                   uint64_t operand) {
  uint64_t& dst = visit.memory->write(step.dst_area, step.dst.first + chunk);
  if (!is_reduction(step.kind)) {
    dst = operand;
    if (step.kind == StepKind::kRecv && step.dst_area == Area::kOutput &&
        visit.plan.shape.collective == Collective::kAllreduce)
      receives_totals_ = receives_totals_ && cells_->is_total(operand, step.dst.first + chunk);
    return Status::ok();
  }
  if (Cells::count(dst) != step.dst_weight)
    return wrong_weight(visit.plan, step, "dst_weight", step.dst_weight, "destination", dst);
  if (Cells::count(operand) != step.src_weight)
    return wrong_weight(visit.plan, step, "src_weight", step.src_weight, "operand", operand);
  dst += operand;
  return Status::ok();
}

[[gnu::always_inline]] inline Status Walk::run_locally(const Visit& visit, const Step& step, Lane& lane,
                                                       double now) {
  if (trace_) [[unlikely]]
    trace_(visit.rank, lane.at, lane.round);
  const bool reduces = step.kind == StepKind::kReduce;
  const double per_byte = reduces ? model_.reduce_seconds_per_byte : model_.reduce_seconds_per_byte / 2;
  lane.ready = now + static_cast<double>(nbytes_of(moved_chunks(step))) * per_byte;
  if (visit.memory == nullptr) return Status::ok();
  return combine(visit, step, 0, visit.memory->read(step.src_area, step.src.first));
}

// A stream that becomes empty passes its memory on to the next stream that needs some: there are
// thousands of streams, and few hold many messages at a time.
[[gnu::always_inline]] inline void Walk::pop(Stream& messages) {
  constexpr std::size_t kSmall = 64;
  if (++messages.head < messages.queue.size()) return;
  messages.head = messages.more_head = 0;
  messages.queue.clear();
  messages.more.clear();
  if (messages.queue.capacity() > kSmall) spare_ = std::move(messages.queue);
}

[[gnu::always_inline]] inline int64_t Walk::nbytes_of(Chunks chunks) const {
  const uint64_t larger = chunks.first >= larger_chunks_ ? 0 : larger_chunks_ - chunks.first;
  return static_cast<int64_t>(chunks.count * chunk_nbytes_ + std::min<uint64_t>(larger, chunks.count));
}

Status Walk::all_ended() {
  for (Rank rank = 0; rank < plans_.size() && taken_ < cost_.steps; ++rank) {
    for (const Lane& lane : states_[index(rank)].lanes) {
      const Plan& plan = plans_.of(rank);
      if (lane.at < plan.steps.size()) {
        return step_error(plan, lane.at, "never ends: what it waits for does not come, whatever others do");
      }
    }
  }
  for (const auto& [at, stream] : streams_) {
    if (stream.empty()) continue;
    const Plan& plan = plans_.of(static_cast<Rank>(at >> 32));
    return step_error(plan, stream.queue[stream.head].step, "is never received");
  }
  return Status::ok();
}

}  // namespace pc
