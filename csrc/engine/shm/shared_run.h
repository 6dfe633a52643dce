// One collective through shared memory: joins the group, announces the call, moves and combines.
//
// Small: every rank puts its array into its line or its ring, announces that, and takes from the others' what it needs. One
// exchange of lines. In rounds: a stream of chunks through the ring. An allreduce has three stages, which overlap:
//
//   rank 0   in: x[1]c0  in: x[1]c1  in: x[1]c2 ...            copy what others need of me into my ring
//                        sum: x[0]c0  sum: x[0]c1 ...          combine my piece from all rings; the result into x and my ring
//                                     out: x[1]c0 ...          take the others' results
//
// Per rank and element it writes (n - 1) / n + 1 / n and reads 2 (n - 1) / n through shared memory (Rabenseifner's amount).
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "engine/run.h"
#include "engine/shm/beyond.h"
#include "engine/shm/call_arrays.h"
#include "engine/shm/group.h"
#include "engine/shm/traffic.h"

namespace pc::shm {

class SharedRun : public Run {
 public:
  SharedRun(Host& host, Group& group, Waiter& waiter) : host_(host), group_(group), waiter_(waiter) {}
  ~SharedRun() override;
  SharedRun(const SharedRun&) = delete;
  SharedRun& operator=(const SharedRun&) = delete;

  // Not while it runs. Touches nothing of the group, which another run may be using.
  // `beyond`: with whom else rounds are exchanged; not owned, outlives the call.
  void prepare(const Request& request, const Launch& launch, const Division& division = {},
               Beyond* beyond = nullptr);
  void start(Scratch& scratch) override;
  void advance() override;
  void end(Status result) override;
  WaitEnd wait(Reactor& reactor, const WaitContext& context) override;
  // start() where the line's lock is held: goes on for as long as it is worth to stay awake. What it has found out about
  // earlier calls is left to tell().
  void start_at_once();
  static void tell(const Launch& launch, const std::vector<Stray>& strays);
  std::string where() const override;
  Rank waits_for() const override { return waits_for_.load(std::memory_order_relaxed); }
  CompletionSink* bell() { return &queue_; }  // for what reports that it can go on, with kWakeToken
  static constexpr uint64_t kWake = kWakeToken;

 private:
  enum class Stage : uint8_t { kJoining, kAnnouncing, kSmall, kComparing, kRounds, kLeaving };
  // What a rank says in the line of a call in rounds: where in its streams the messages begin, or where its arrays lie.
  struct Opening {
    uint64_t base[2] = {};
    HeapPlace arrays[2] = {};  // by StreamKind
  };
  static_assert(sizeof(Opening) <= kInlineNbytes);
  struct Incoming {  // from one rank
    Opening opening;
    const std::byte* arrays[2] = {};  // null: it comes through the ring
    uint64_t far = 0;  // where this rank's part is in that rank's private memory; 0: it is not read there
    uint32_t rounds = 0, next = 0;
  };

  bool ready();  // advance() may have something to do
  void go_on();
  // These say whether they are done, or have moved something. If not, the words to wait for are noted in the group, or
  // failure_ is set.
  bool step();
  bool join();
  bool announce();
  bool announce_rounds();
  bool compare(Rank peer);
  bool small();
  bool leads() const { return traffic_.leader() == launch_.rank; }
  bool lead();
  bool gather();
  bool combine_here(std::byte* to);
  bool follow();
  bool take_small(Rank peer);
  const std::byte* small_message(Rank peer);
  bool combine_small();
  bool compare_all();
  void go_on_meanwhile();
  void choose_way(bool stays);
  Ways::Kind kind() const;
  std::size_t round_nbytes() const;
  bool find_arrays(Rank peer);
  bool find_far(Rank peer, StreamKind kind, uint64_t address);
  bool all_stand();
  bool leave();
  bool rounds();
  bool put_inputs();
  bool combine_round();
  bool pass_on();
  bool is_of_parts() const;
  // Round `round` of what `member` stands for: calls `each(begin of a part's piece in the whole array, its bytes)`.
  template <class Each>
  void for_parts_of(Rank member, uint32_t round, std::size_t nbytes, Each&& each) const;
  void put_parts(Rank reader, uint32_t round, std::size_t nbytes, std::byte* to) const;
  void take_parts(Rank writer, uint32_t round, std::size_t nbytes, const std::byte* from) const;
  void combine_parts(uint32_t round, std::size_t nbytes, std::byte* to);
  void exchange(uint32_t round, uint64_t position, std::span<std::byte> memory);
  void hold_what_is_not_passed_on();
  bool others_want_results() const;
  void note_whom_it_waits_for();
  bool take(StreamKind kind, Rank peer);
  bool take_far(Rank peer);
  const std::byte* round_message(Rank peer, StreamKind kind, uint32_t round, std::size_t offset,
                                 std::size_t nbytes);
  std::span<const std::byte*> contributions();
  bool keep_own_part();
  void note_rounds();
  void tell_what_is_not_read();
  void tell_what_is_read(StreamKind kind);
  bool has_size(Rank peer, const std::byte* said);
  bool is_done() const;
  bool reads_from_all() const;
  Traffic::Span own_sum() const;
  Traffic::Span own_part_of(Rank peer) const;
  uint32_t rounds_of(std::size_t nbytes) const;
  Status differs(Rank peer) const;
  bool fail(Status why) {
    failure_ = std::move(why);
    return false;
  }
  void undriven() override;
  void driven() override;

  static constexpr std::size_t kKeptAtOnce = 128UL * 1024;

  Host& host_;
  Group& group_;
  Waiter& waiter_;  // the group's
  Beyond* beyond_ = nullptr;
  Traffic traffic_;
  CallArrays arrays_;
  Stage stage_ = Stage::kJoining;
  bool announced_ = false;
  bool listed_ = false;                          // at host_
  bool reads_[2] = {};                           // by StreamKind: what others put into theirs
  bool lends_[2] = {};                           // by StreamKind: others read this rank's array where it lies
  Way way_ = Way::kRing;                         // how this rank gives what it has to the others
  bool on_trial_ = false;                        // way_
  std::chrono::steady_clock::time_point began_;  // if it is on trial
  std::size_t kept_ = 0;                         // bytes of the own part
  Rank next_peer_ = 0;                           // whom to look at next, where they come in order
  uint32_t put_ = 0, put_rounds_ = 0;            // inputs
  uint32_t combined_ = 0, combined_rounds_ = 0;  // of our piece
  uint32_t passed_ = 0;                          // of what was exchanged beyond: given to the others here
  alignas(8) std::byte combined_here_[kInlineNbytes];  // of a small call that this rank leads
  std::vector<uint64_t> positions_;                    // of rounds that are being exchanged, by round
  bool more_to_do_ = false;                            // without waiting
  std::vector<Incoming> incoming_;
  std::vector<const std::byte*> sources_;
  Status failure_;
  std::atomic<Rank> waits_for_{-1};
  std::atomic<bool> begun_{false}, waits_beyond_{false};
};

}  // namespace pc::shm
