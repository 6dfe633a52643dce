#include "plan/walk.h"

#include <algorithm>
#include <string>

#include "plan/analysis.h"

namespace pc {
namespace {

constexpr double kNotYet = -1;

std::size_t index(Rank rank) { return static_cast<std::size_t>(rank); }
uint64_t key(Rank from, Rank to, uint8_t lane) {
  return static_cast<uint64_t>(from) << 32 | static_cast<uint64_t>(to) << 8 | lane;
}

uint32_t next_in_lane(const Plan& plan, uint8_t lane, std::size_t from) {
  if (plan.lanes > 1) {
    while (from < plan.steps.size() && plan.steps[from].lane != lane) ++from;
  }
  return static_cast<uint32_t>(from);
}

bool uses_after(const Plan& plan) {
  return std::any_of(plan.steps.begin(), plan.steps.end(), [](const Step& step) { return step.after > 0; });
}

}  // namespace

Walk::Walk(PlanSource& plans, uint64_t nbytes, const LinkModel& model, Cells* cells, Trace trace)
    : plans_(plans),
      model_(model),
      cells_(cells),
      trace_(std::move(trace)),
      states_(index(plans.size())) {
  const Plan& any = plans.of(plans.size() / 2);
  const bool is_square = any.shape.collective == Collective::kAlltoall;  // names chunks of all ranks' arrays
  const uint64_t pieces = is_square ? static_cast<uint64_t>(any.shape.size) : any.chunks;
  chunk_nbytes_ = pieces == 0 ? 0 : nbytes / pieces;
  larger_chunks_ = pieces == 0 || is_square ? 0 : nbytes % pieces;
  by_time_ = plans.keeps_all() && any.lanes > 1;
  cost_.least_nbytes = ~uint64_t{0};
  for (Rank rank = plans.size(); rank-- > 0;) wake(rank, 0);
}

Result<Cost> Walk::to_the_end() {
  while (!turns_.empty()) {
    const auto [at, rank] = turns_.top();
    turns_.pop();
    State& state = states_[index(rank)];
    if (state.turn != at) continue;  // it has had its turn, or will have it earlier
    state.turn = kForever;
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
    cost_.least_nbytes = std::min(cost_.least_nbytes, state.sent_nbytes);
    cost_.most_nbytes = std::max(cost_.most_nbytes, state.sent_nbytes);
    for (const Lane& lane : state.lanes) {
      cost_.rounds = std::max(cost_.rounds, lane.round);
      cost_.seconds = std::max(cost_.seconds, lane.ready);
    }
    cost_.seconds = std::max(cost_.seconds, state.out_free);
  }
  return cost_;
}

void Walk::wake(Rank rank, double at) {
  State& state = states_[index(rank)];
  if (!by_time_) {
    state.queued = true;
    next_.push_back(rank);
  } else if (at < state.turn) {
    state.turn = at;
    turns_.emplace(at, rank);
  }
}

void Walk::begin(const Plan& plan, State& state) {
  state.lanes.resize(plan.lanes);
  for (uint8_t lane = 0; lane < plan.lanes; ++lane) state.lanes[lane].at = next_in_lane(plan, lane, 0);
  if (uses_after(plan)) state.done.resize(plan.steps.size());
  cost_.steps += plan.steps.size();
  if (plan.lanes > 1 && !by_time_) cost_.exact = false;
}

// Takes steps in the order of time, as far as they can begin `until` then.
Status Walk::visit(Rank rank, double until) {
  const Plan& plan = plans_.of(rank);
  State& state = states_[index(rank)];
  if (state.lanes.empty()) begin(plan, state);
  Visit visit{plan, state, cells_ != nullptr ? &cells_->of(plan) : nullptr};
  for (;;) {
    Lane* first = nullptr;
    double now = kForever;
    for (Lane& lane : state.lanes) {
      if (lane.at >= plan.steps.size()) continue;
      const double at = begins(visit, lane);
      if (at == kNotYet || at >= now) continue;
      first = &lane;
      now = at;
    }
    if (first == nullptr) return Status::ok();
    if (now > until) return wake(rank, now), Status::ok();
    PC_TRY(take(visit, *first, now));
  }
}

double Walk::begins(Visit& visit, Lane& lane) {
  const Step& step = visit.plan.steps[lane.at];
  double at = lane.ready;
  if (step.after > 0) {
    if (!after_is_done(visit, step.after - 1)) return kNotYet;
    at = std::max(at, visit.state.done[step.after - 1].at);
  }
  if (!is_receive(step.kind)) return at;
  const Stream& messages = stream(lane.in, key(step.peer, visit.plan.shape.rank, step.lane));
  lane.waits_for = messages.empty() ? step.peer : -1;
  return messages.empty() ? kNotYet : std::max(at, messages.queue[messages.head].at);
}

// As in check(): a send is complete when it has been received, the worst case.
bool Walk::after_is_done(Visit& visit, uint32_t step) {
  const Step& needed = visit.plan.steps[step];
  if (visit.state.lanes[needed.lane].at <= step) return false;
  if (needed.kind != StepKind::kSend) return true;
  const auto found = streams_.find(key(visit.plan.shape.rank, needed.peer, needed.lane));
  const bool is_read =
      found == streams_.end() || found->second.empty() || found->second.queue[found->second.head].step > step;
  if (!is_read) visit.state.waits_for_reader = true;
  return is_read;
}

Status Walk::take(Visit& visit, Lane& lane, double now) {
  const uint32_t at = lane.at;
  const Step& step = visit.plan.steps[at];
  if (step.after > 0) lane.round = std::max(lane.round, visit.state.done[step.after - 1].round);
  if (step.kind == StepKind::kSend) {
    send(visit, step, lane, now);
  } else if (is_receive(step.kind)) {
    PC_TRY(receive(visit, step, lane, now));
  } else {
    PC_TRY(run_locally(visit, step, lane, now));
  }
  if (!visit.state.done.empty()) {
    visit.state.done[at] = {step.kind == StepKind::kSend ? visit.state.out_free : lane.ready, lane.round};
  }
  lane.at = next_in_lane(visit.plan, step.lane, std::size_t{at} + 1);
  ++taken_;
  return Status::ok();
}

void Walk::send(Visit& visit, const Step& step, Lane& lane, double now) {
  State& state = visit.state;
  const Chunks moved = moved_chunks(step);
  const int64_t nbytes = nbytes_of(moved);  // signed: a processor turns it into a double at once
  const double start = std::max(now, state.out_free) + model_.overhead_s;
  state.out_free = start + static_cast<double>(nbytes) * model_.seconds_per_byte;
  state.sent_nbytes += static_cast<uint64_t>(nbytes);
  lane.ready = now;
  ++cost_.messages;
  if (trace_) trace_(visit.plan.shape.rank, lane.at, lane.round);

  Stream& messages = stream(lane.out, key(visit.plan.shape.rank, step.peer, step.lane));
  Message& message =
      messages.queue.emplace_back();  // written where it lies: a copy would cost as much as the rest
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
  if (step.lane >= theirs.size() || theirs[step.lane].waits_for != visit.plan.shape.rank) return;
  theirs[step.lane].waits_for = -1;
  wake(step.peer, std::max(message.at, theirs[step.lane].ready));
}

Status Walk::receive(Visit& visit, const Step& step, Lane& lane, double now) {
  Stream& messages = stream(lane.in, key(step.peer, visit.plan.shape.rank, step.lane));
  const Message& message = messages.queue[messages.head];  // until pop()
  if (message.moved != moved_chunks(step))
    return step_error(visit.plan, lane.at, "gets other chunks than it names").with_peer(step.peer);
  if (trace_) trace_(visit.plan.shape.rank, lane.at, message.round);
  const double nbytes = static_cast<double>(nbytes_of(message.moved));
  // The data may have come before the receive was there.
  const double arrived =
      std::max(message.at, visit.state.in_free) + nbytes * model_.seconds_per_byte + model_.overhead_s;
  visit.state.in_free = arrived;
  lane.ready = std::max(now, arrived);
  if (step.kind == StepKind::kRecvReduce) lane.ready += nbytes * model_.reduce_seconds_per_byte;
  lane.round = std::max(lane.round, message.round + 1);
  if (visit.memory != nullptr && step.dst.count > 0) {
    PC_TRY(combine(visit, lane.at, 0, message.word));
    for (uint32_t c = 1; c < step.dst.count; ++c)
      PC_TRY(combine(visit, lane.at, c, messages.more[messages.more_head++]));
  }
  messages.pop();
  State& sender = states_[index(step.peer)];
  if (sender.waits_for_reader) {
    sender.waits_for_reader = false;
    wake(step.peer, lane.ready);
  }
  return Status::ok();
}

Status Walk::combine(const Visit& visit, uint32_t at, uint32_t chunk, uint64_t operand) {
  const Step& step = visit.plan.steps[at];
  uint64_t& dst = visit.memory->write(step.dst_area, step.dst.first + chunk);
  if (!is_reduction(step.kind)) {
    dst = operand;
    if (step.kind == StepKind::kRecv && step.dst_area == Area::kOutput &&
        visit.plan.shape.collective == Collective::kAllreduce)
      receives_totals_ = receives_totals_ && cells_->is_total(operand, step.dst.first + chunk);
    return Status::ok();
  }
  const auto wrong = [&](std::string_view weight, uint16_t says, std::string_view what, uint64_t holds) {
    return step_error(visit.plan, at,
                      "says " + std::string(weight) + " " + std::to_string(says) + ", but its " +
                          std::string(what) + " holds " + std::to_string(Cells::count(holds)) +
                          " contributions");
  };
  if (Cells::count(dst) != step.dst_weight) return wrong("dst_weight", step.dst_weight, "destination", dst);
  if (Cells::count(operand) != step.src_weight)
    return wrong("src_weight", step.src_weight, "operand", operand);
  dst += operand;
  return Status::ok();
}

Status Walk::run_locally(const Visit& visit, const Step& step, Lane& lane, double now) {
  if (trace_) trace_(visit.plan.shape.rank, lane.at, lane.round);
  const bool reduces = step.kind == StepKind::kReduce;
  const double per_byte = reduces ? model_.reduce_seconds_per_byte : model_.reduce_seconds_per_byte / 2;
  lane.ready = now + static_cast<double>(nbytes_of(moved_chunks(step))) * per_byte;
  if (visit.memory == nullptr) return Status::ok();
  return combine(visit, lane.at, 0, visit.memory->read(step.src_area, step.src.first));
}

// Streams stay where they are, so a lane remembers the last one that it used in each direction.
Walk::Stream& Walk::stream(Lane::End& end, uint64_t wanted) {
  if (end.key != wanted) end = {wanted, &streams_[wanted]};
  return *end.stream;
}

// Memory goes back when a stream is empty: there are thousands, and few hold much at a time.
void Walk::Stream::pop() {
  constexpr std::size_t kSmall = 64;
  if (++head < queue.size()) return;
  head = more_head = 0;
  if (queue.capacity() > kSmall) {
    std::vector<Message>().swap(queue);  // an assignment would keep its memory
  } else {
    queue.clear();
  }
  more.clear();
}

int64_t Walk::nbytes_of(Chunks chunks) const {
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
