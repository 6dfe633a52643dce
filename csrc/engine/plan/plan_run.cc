#include "engine/plan/plan_run.h"

#include <cstring>
#include <new>

namespace pc {
namespace {

// A list of arrays below this size is copied into contiguous memory: its messages are so small that
// separate pieces would cost more than the copies.
constexpr std::size_t kPackedBelow = 1024UL * 1024;

}  // namespace

void PlanRun::Reducer::consume(uint64_t offset, std::span<const std::byte> data) {
  copy_pieces(data, dst, offset, [this](std::byte* to, const std::byte* from, std::size_t nbytes) {
    combine(to, from, nbytes);
  });
}

void PlanRun::Reducer::combine(std::byte* to, const std::byte* from, std::size_t nbytes) const {
  if (copies) {
    std::memcpy(to, from, nbytes);
  } else {
    reduce(to, to, from, nbytes / size_of(dtype), dtype, op, weights);
  }
}

void PlanRun::prepare(const Request& request, const Launch& launch) {
  renew(request, launch);
  const DType dtype = elements_of(request, launch.size).dtype;
  geometry_.bind(request, plan_->plan.shape, plan_->plan.chunks);
  lanes_.resize(plan_->plan.lanes);
  for (uint32_t l = 0; l < lanes_.size(); ++l) {
    lanes_[l].position = plan_->lane_begin[l];
    lanes_[l].step_started = false;
    lanes_[l].reducer.dtype = dtype;
    lanes_[l].reducer.op = request.op;
  }
  states_.assign(plan_->plan.steps.size(), kNotStarted);
  incomplete_ = states_.size();
  scratch_ = packed_ = nullptr;
  input_ = const_cast<std::byte*>(request.in.data);  // never written: compile() ensures that
  output_ = request.out.data;
  list_ = request.in.list != nullptr ? request.in.list : request.out.list;
}

void PlanRun::start(Scratch& scratch) {
  guarded([&] { begin(scratch); });
}

void PlanRun::advance() {
  guarded([&] { go_on(); });
}

// Posting may need memory. If there is none, what has been posted is withdrawn, and the call ends
// on all ranks.
template <class Action>
void PlanRun::guarded(Action&& action) {
  try {
    action();
  } catch (const std::bad_alloc&) {
    end(Status(Code::kSystem, "no memory to go on with this call"));
  }
}

void PlanRun::begin(Scratch& scratch) {
  started_ = true;
  const std::size_t scratch_nbytes = plan_->plan.scratch_chunks * geometry_.chunk_nbytes();
  const bool packs = list_ != nullptr && list_->nbytes() < kPackedBelow;
  const std::size_t nbytes = scratch_nbytes + (packs ? list_->nbytes() : 0);
  if (nbytes != 0) {
    scratch_ = scratch.reserve(nbytes);
    if (scratch_ == nullptr)
      return end(Status(Code::kSystem, "no memory for " + std::to_string(nbytes) + " bytes of scratch"));
  }
  if (packs) pack(scratch_ + scratch_nbytes);
  // Lists are always in place, so only contiguous arrays may have to be copied.
  if (const Chunks shared = plan_->shared; shared.count != 0 && list_ == nullptr) {
    const std::byte* const from = at(Area::kInput, shared).data;
    std::byte* const to = at(Area::kOutput, shared).data;
    const std::size_t shared_nbytes = geometry_.nbytes(shared);
    if (from != to && shared_nbytes != 0) std::memcpy(to, from, shared_nbytes);
  }
  go_on();
}

// Returns whether this rank's arrays receive a result.
bool PlanRun::writes() const {
  const bool only_sends = request_.collective == Collective::kBroadcast && launch_.rank == request_.root;
  return request_.out.list != nullptr && !only_sends;
}

void PlanRun::pack(std::byte* memory) {
  if (request_.in.list != nullptr)
    copy_pieces(ConstIoVec({nullptr, list_}, list_->nbytes()), {memory}, std::memcpy);
  packed_ = input_ = output_ = memory;
  list_ = nullptr;
}

void PlanRun::unpack() {
  if (packed_ != nullptr && writes())
    copy_pieces(std::span(packed_, request_.out.list->nbytes()), {nullptr, request_.out.list}, 0,
                std::memcpy);
}

void PlanRun::go_on() {
  for (bool moved = true; moved && !ended();) {
    moved = false;
    for (uint32_t l = 0; l < lanes_.size(); ++l) moved |= advance_lane(l);
    Completion completion;
    while (!ended() && !queue_.empty() && queue_.take(completion)) {
      take(std::move(completion));
      moved = true;
    }
    if (incomplete_ == 0 && !ended()) {
      reduce_single_contribution();
      unpack();
      end(Status());
    }
  }
}

// If this rank's output is the contribution of a single rank, as on the first ranks of a scan, no
// step has scaled it or normalized it to 0 and 1. This method does so, after all sends have read
// the output.
void PlanRun::reduce_single_contribution() {
  const Shape& shape = plan_->plan.shape;
  if (!reduces(shape.collective) || !has_output(shape)) return;
  const Contributors ranks = contributors(shape, plan_->plan.chunks, 0);
  if (ranks.to - ranks.from != 1) return;
  const DType dtype = request_.out.dtype;
  const Location out{output_, list_};
  copy_pieces(ConstIoVec(out, request_.out.nbytes()), out,
              [&](std::byte* to, const std::byte* from, std::size_t n) {
                reduce_alone(to, from, n / size_of(dtype), dtype, request_.op);
              });
}

bool PlanRun::advance_lane(uint32_t index) {
  Lane& lane = lanes_[index];
  const uint32_t stop = plan_->lane_begin[index + 1];
  bool moved = false;
  while (lane.position != stop) {
    const uint32_t i = plan_->lane_steps[lane.position];
    const Step& step = plan_->plan.steps[i];
    if (!lane.step_started) {
      if (step.after != 0 && state_of(step.after - 1) != kComplete) break;
      lane.step_started = true;
      start_step(i, lane);
      moved = true;
    }
    if (step.kind != StepKind::kSend && state_of(i) != kComplete) break;
    ++lane.position;
    lane.step_started = false;
  }
  return moved;
}

void PlanRun::start_step(uint32_t i, Lane& lane) {
  const Step& step = plan_->plan.steps[i];
  const std::size_t nbytes = geometry_.nbytes(moved_chunks(step));
  set_state(i, kInFlight);
  switch (step.kind) {
    case StepKind::kSend: {
      const ConstIoVec payload(at(step.src_area, step.src), nbytes);
      transport_.post_send(launch_.world_ranks[step.peer], SendOp{id_of(i), payload, &queue_, i});
      return;
    }
    case StepKind::kRecv:
    case StepKind::kRecvReduce: {
      RecvOp op{id_of(i), {}, nbytes, nullptr, &queue_, i};
      const Location dst = at(step.dst_area, step.dst);
      if (step.kind == StepKind::kRecv && dst.list == nullptr) {
        op.payload = {dst.data, nbytes};
      } else {
        lane.reducer.dst = dst;
        lane.reducer.copies = step.kind == StepKind::kRecv;
        lane.reducer.weights = weights_of(step);
        op.consumer = &lane.reducer;
      }
      transport_.post_recv(launch_.world_ranks[step.peer], op);
      return;
    }
    case StepKind::kReduce:
    case StepKind::kCopy:
      run_locally(step);
      set_state(i, kComplete);
      --incomplete_;
      return;
  }
}

void PlanRun::run_locally(const Step& step) {
  const std::size_t nbytes = geometry_.nbytes(moved_chunks(step));
  const Location dst = at(step.dst_area, step.dst), src = at(step.src_area, step.src);
  Reducer& how = lanes_[step.lane].reducer;
  how.copies = step.kind == StepKind::kCopy;
  how.weights = weights_of(step);
  copy_pieces(ConstIoVec(src, nbytes), dst, [&](std::byte* to, const std::byte* from, std::size_t count) {
    const bool is_there = how.copies && to == from;  // in place, input and output are the same memory
    if (!is_there) how.combine(to, from, count);
  });
}

void PlanRun::take(Completion&& completion) {
  if (completion.token == kWakeToken) return;
  if (completion.token == kLateMismatchToken) {
    if (launch_.listener != nullptr)
      launch_.listener->late_mismatch(completion.found.sequence, completion.status.peer(), completion.status);
    return;
  }
  if (!completion.status.is_ok()) {
    return end(completion.token == kEndToken ? std::move(completion.status) : explain_failure(completion));
  }
  const uint32_t step = static_cast<uint32_t>(completion.token);
  set_state(step, kComplete);
  --incomplete_;
}

void PlanRun::end(Status result) {
  if (ended()) return;
  if (started_ && incomplete_ != 0) {
    transport_.cancel(&queue_, result);
    const bool is_part = launch_.names != nullptr;  // other parts of the same call may still be posted
    if (!is_part) transport_.discard(launch_.group, launch_.sequence);
  }
  set_ended(std::move(result));
}

void PlanRun::set_state(uint32_t step, StepState state) {
  std::atomic_ref<uint8_t>(states_[step]).store(state, std::memory_order_relaxed);
}
PlanRun::StepState PlanRun::state_of(uint32_t step) const {
  uint8_t& state = const_cast<uint8_t&>(states_[step]);  // atomic_ref has no const form in C++20
  return static_cast<StepState>(std::atomic_ref<uint8_t>(state).load(std::memory_order_relaxed));
}

Location PlanRun::at(Area area, Chunks chunks) const {
  if (area == Area::kScratch) return {scratch_ + chunks.first * geometry_.chunk_nbytes()};
  const bool is_input = area == Area::kInput;
  const std::size_t begin = is_input ? geometry_.input(chunks.first) : geometry_.output(chunks.first);
  if (list_ == nullptr) return {(is_input ? input_ : output_) + begin};
  const std::size_t nbytes = geometry_.nbytes(chunks);
  if (nbytes == 0) return {};
  const std::span<std::byte> first = list_->at(begin, nbytes);
  return first.size() == nbytes ? Location{first.data()} : Location{nullptr, list_, begin};
}

MessageId PlanRun::id_of(uint32_t step) const {
  const Stream stream{launch_.group, StreamClass::kCollective, plan_->plan.steps[step].lane};
  return {stream, launch_.sequence, launch_.first_message + plan_->message_index[step], launch_.digest};
}

Weights PlanRun::weights_of(const Step& step) const {
  const uint32_t each = launch_.contributions;
  return {step.dst_weight * each, step.src_weight * each, static_cast<uint32_t>(launch_.size) * each};
}

Status PlanRun::explain_failure(const Completion& completion) const {
  const uint32_t i = static_cast<uint32_t>(completion.token);
  const Rank peer = launch_.named(plan_->plan.steps[i].peer);
  const std::string peer_name = "rank " + std::to_string(peer);
  std::string text = completion.status.message();
  if (completion.status.code() == Code::kMismatch && completion.found.digest != launch_.digest) {
    const auto is_leaving = [this](uint64_t digest) {
      return launch_.listener != nullptr && digest == launch_.listener->digest_of_leaving(launch_.sequence);
    };
    if (is_leaving(completion.found.digest)) {
      text = peer_name + " called shutdown() or ended instead of making this call";
      return Status(Code::kPeerExited, text + "; in " + describe(i)).with_peer(peer);
    }
    const bool leaving = is_leaving(launch_.digest);
    text =
        peer_name +
        (leaving
             ? " is in another call, and this rank leaves ("
             : " made another call here: collective, dtype, op, root, count or algorithm differ, or one of "
               "the two skipped or repeated a call (") +
        text + ")";
  }
  return Status(completion.status.code(), text + "; in " + describe(i)).with_peer(peer);
}

uint32_t PlanRun::waiting_step() const {
  uint32_t first = kNone;
  for (uint32_t i = 0; i < states_.size(); ++i) {
    if (state_of(i) != kInFlight) continue;
    if (plan_->plan.steps[i].kind != StepKind::kSend) return i;
    if (first == kNone) first = i;
  }
  return first;
}

Rank PlanRun::waits_for() const {
  const uint32_t step = waiting_step();
  return step == kNone ? -1 : launch_.named(plan_->plan.steps[step].peer);
}

std::string PlanRun::where() const {
  const uint32_t step = waiting_step();
  if (step != kNone) return describe(step);
  return ended() ? "ended" : "not started: earlier calls of this group are not done";
}

std::string PlanRun::describe(uint32_t i) const {
  Step step = plan_->plan.steps[i];
  step.peer = launch_.named(step.peer);
  return "step " + std::to_string(i + 1) + "/" + std::to_string(states_.size()) + ": " + to_string(step);
}

}  // namespace pc
