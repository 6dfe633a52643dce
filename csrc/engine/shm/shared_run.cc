#include "engine/shm/shared_run.h"

#include <algorithm>
#include <new>
#include <string>

namespace pc::shm {

SharedRun::~SharedRun() {
  if (started_ && !ended()) end(Status(Code::kSystem, "no memory to go on with this call"));
  progress_held();
}

void SharedRun::prepare(const Request& request, const Launch& launch, const Division& division,
                        InterDomainExchange* inter_domain) {
  renew(request, launch);
  announced_ = false;
  waits_for_.store(-1, std::memory_order_relaxed);
  begun_.store(false, std::memory_order_relaxed);
  waits_inter_domain_.store(false, std::memory_order_relaxed);
  exchange_.prepare(division, inter_domain);
  led_.prepare();
}

void SharedRun::start(Scratch&) {
  started_ = true;
  go_on();
  report_late_mismatches(launch_, exchange_.group.take_late_mismatches());
}

void SharedRun::start_at_once() {
  started_ = true;
  go_on();
  // a call in rounds would block the other threads for too long
  if (ended() || exchange_.traffic.in_rounds()) return;
  waiter_.briefly([this] {
    if (!ready()) return false;
    go_on();
    return ended();
  });
}

void SharedRun::report_late_mismatches(const Launch& launch,
                                       const std::vector<LateMismatch>& late_mismatches) {
  for (const LateMismatch& late_mismatch : late_mismatches) {
    if (launch.listener != nullptr)
      launch.listener->late_mismatch(late_mismatch.sequence, late_mismatch.world, late_mismatch.why);
  }
}

void SharedRun::advance() {
  Completion completion;
  while (!ended() && queue_.take(completion)) {
    if (completion.token == kEndToken) return end(std::move(completion.status));
  }
  if (ended()) return;
  go_on();
  report_late_mismatches(launch_, exchange_.group.take_late_mismatches());
}

void SharedRun::go_on() {
  Group& group = exchange_.group;
  begun_.store(true, std::memory_order_relaxed);
  group.awaited().clear();
  exchange_.more_to_do = false;
  try {
    if (step()) return end(Status());
    if (!exchange_.failure.is_ok()) return end(std::move(exchange_.failure));
  } catch (const std::bad_alloc&) {
    return end(Status(Code::kSystem, "no memory to go on with this call"));
  }
  const std::vector<Awaited>& awaited = group.awaited();
  for (const Awaited& word : awaited) {
    // has_left() must be checked first: all that the rank wrote, it wrote before it left.
    if (group.has_left(word.peer) && !word.has_changed()) return end(has_left(launch_.named(word.peer)));
  }
  const Rank remote = exchange_.inter_domain == nullptr ? -1 : exchange_.inter_domain->waits_for();
  const Rank local = awaited.empty() ? -1 : launch_.named(awaited.front().peer);
  waits_inter_domain_.store(remote != -1, std::memory_order_relaxed);
  waits_for_.store(remote != -1 ? remote : local, std::memory_order_relaxed);
}

bool SharedRun::step() {
  if (!announced_ && !announce()) return false;
  announced_ = true;
  if (exchange_.traffic.in_rounds()) return rounds_.go_on();
  if (exchange_.traffic.leader() >= 0) return leads() || follow(exchange_);
  return finish_small(exchange_);
}

bool SharedRun::announce() {
  if (!exchange_.join()) return false;
  if (leads()) return led_.lead();
  return exchange_.traffic.in_rounds() ? rounds_.announce() : announce_small(exchange_);
}

void SharedRun::end(Status result) {
  if (ended()) return;
  Group& group = exchange_.group;
  if (exchange_.inter_domain != nullptr && started_ && !result.is_ok()) exchange_.inter_domain->end(result);
  if (announced_ && group.announced() == launch_.sequence) {
    if (!result.is_ok()) {
      group.give_up();
    } else if (exchange_.traffic.in_rounds()) {
      group.set_read(kInputs, kAllRounds);
      group.set_read(kResults, kAllRounds);
    }
  }
  progress_held();
  set_ended(std::move(result));
}

// ---- waiting

bool SharedRun::ready() {
  const std::vector<Awaited>& awaited = exchange_.group.awaited();
  if (exchange_.more_to_do) return true;
  if (awaited.empty()) return exchange_.inter_domain == nullptr || !exchange_.inter_domain->is_active();
  return std::any_of(awaited.begin(), awaited.end(), [](const Awaited& word) { return word.has_changed(); });
}

WaitEnd SharedRun::wait_to_advance(Reactor& reactor, const WaitContext& context) {
  const auto look = [this] { return ready() || !queue_.empty(); };
  const bool polls = exchange_.inter_domain != nullptr && exchange_.inter_domain->is_active();
  const bool stays_awake = !polls || !reactor.polls_in_background();
  if (stays_awake && waiter_.briefly([&] { return look() || (polls && reactor.poll(queue_)); }))
    return WaitEnd::kReady;
  exchange_.host.list(queue_, kWakeToken);
  // This check must follow list(): either this rank sees what the other ranks have written, or they
  // see that this rank sleeps.
  const WaitEnd end = look() ? WaitEnd::kReady : reactor.wait(queue_, context);
  exchange_.host.unlist(queue_);
  return end;
}

void SharedRun::progress_released() {
  if (listed_ || ended()) return;
  listed_ = true;
  exchange_.host.list(queue_, kWakeToken);
  if (ready()) wake();
}

void SharedRun::progress_held() {
  if (!listed_) return;
  listed_ = false;
  exchange_.host.unlist(queue_);
}

std::string SharedRun::where() const {
  if (ended()) return "ended";
  const Rank peer = waits_for();
  const bool remote = waits_inter_domain_.load(std::memory_order_relaxed);
  if (peer >= 0)
    return (remote ? "between hosts: waiting for rank " : "shared memory: waiting for rank ") +
           std::to_string(peer);
  return begun_.load(std::memory_order_relaxed) ? "shared memory: going on"
                                                : "not started: earlier calls of this group are not done";
}

}  // namespace pc::shm
