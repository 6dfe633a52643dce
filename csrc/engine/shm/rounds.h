// A call in rounds (rounds.cc): what its stages share, and the stages. Each of them is a screen of its own.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "engine/shm/exchange.h"

namespace pc::shm {

struct Rounds {
  explicit Rounds(Exchange& call) : exchange(call) {}
  bool announce();  // whether it is done
  bool go_on();     // likewise; the others need nothing more of this rank then

  // What a rank says in its slot: where in its streams the messages begin, or where its arrays lie.
  struct Opening {
    uint64_t base[2] = {};
    HeapPlace arrays[2] = {};  // by StreamKind
  };
  static_assert(sizeof(Opening) <= kInlineNbytes);
  struct Progress {  // of one stage, in rounds
    uint32_t next = 0, count = 0;
    bool is_done() const { return next == count; }
  };
  struct Incoming {  // from one rank
    Opening opening;
    const std::byte* arrays[2] = {};  // null: it comes through the ring
    uint64_t private_address = 0;     // in its private memory, of what it has for this rank; 0: in none
    Progress taken;
  };
  struct Trial {
    CopyPath path;
    std::chrono::steady_clock::time_point began;
  };

  Exchange& exchange;
  Group& group = exchange.group;
  const Launch& launch = exchange.launch;
  const Traffic& traffic = exchange.traffic;
  enum class Stage : uint8_t { kComparing, kMoving, kLeaving } stage = Stage::kComparing;
  bool exposes[2] = {};  // by StreamKind: others read this rank's array where it lies
  Progress put, combined;
  std::vector<Incoming> incoming;   // by rank
  std::vector<uint64_t> positions;  // in the ring, of rounds that are exchanged with other hosts
  uint32_t passed_on = 0;           // of these
  std::optional<Trial> trial;

  Incoming& from(Rank peer) { return incoming[static_cast<std::size_t>(peer)]; }
  std::size_t offset(uint32_t round) const { return round * traffic.chunk_nbytes(); }
  Traffic::Span part(const Traffic::Span& all, uint32_t round) const;
  Traffic::Span own_sum() const;  // of the output: what is combined here
  bool others_want_results() const;
  // Where `nbytes` at `begin` of a round's message are. Null: not there yet.
  const std::byte* message(Rank peer, StreamKind kind, uint32_t round, std::size_t begin, std::size_t nbytes);
  void take_message(Rank writer, uint32_t round, const Traffic::Span& part, const std::byte* message) const;
  // Calls `visit(place in the message, begin in the array, bytes)` for what there is of the array in a message of that rank, or
  // for it. Where a rank stands for parts of other hosts, there is a piece of each, one behind the other, and `is_part` says
  // whether the array is this rank's part alone.
  template <class Visit>
  void visit_pieces(Rank member, uint32_t round, const Traffic::Span& part, bool is_part,
                    Visit&& visit) const {
    if (!exchange.is_of_parts()) return visit(0, part.begin, part.nbytes);
    const std::span<const Rank> parts = exchange.inter_domain->parts_of(member);
    const std::size_t nbytes = part.nbytes / parts.size();
    const std::size_t begin = round * (traffic.chunk_nbytes() / parts.size());
    if (is_part) return visit(exchange.inter_domain->own_part() * nbytes, begin, nbytes);
    const std::size_t part_nbytes = traffic.outgoing(launch.rank).nbytes / parts.size();
    for (std::size_t i = 0; i < parts.size(); ++i)
      visit(i * nbytes, static_cast<std::size_t>(parts[i]) * part_nbytes + begin, nbytes);
  }

 private:
  void count_rounds();
  bool compare_all();
  bool move();
};

// The stages. Each moves a round, or several, if it can; whether it has.
bool put_inputs(Rounds& rounds);                          // rounds_put.cc
bool combine_own_piece(Rounds& rounds);                   // rounds_combine.cc
bool take(Rounds& rounds, StreamKind kind, Rank writer);  // rounds_take.cc

// Between hosts (rounds_inter_domain.cc): a round is exchanged with other hosts before it is passed on.
void exchange_between_hosts(Rounds& rounds, uint32_t round, uint64_t position, std::size_t nbytes);
bool pass_on(Rounds& rounds);  // a stage
void hold_what_is_not_passed_on(Rounds& rounds);

// Arrays that others read where they lie (rounds_exposed.cc).
Rounds::Opening open_rounds(Rounds& rounds);  // decides which ones
bool find_arrays(Rounds& rounds, Rank peer);  // those of that rank
bool stayed_exposed(Rounds& rounds);          // what was read there is right
bool are_given_back(Rounds& rounds);          // no rank reads there any more

// Where a reader finds its part among those that a writer has put there, one behind the other.
inline std::size_t part_number(Rank writer, Rank reader) {
  return static_cast<std::size_t>(reader < writer ? reader : reader - 1);
}

}  // namespace pc::shm
