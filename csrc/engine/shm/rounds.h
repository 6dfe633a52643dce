// A call in rounds (rounds.cc): the state that its stages share, and the stages. Each stage has a
// file.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "engine/shm/exchange.h"

namespace pc::shm {

struct Rounds {
  explicit Rounds(Exchange& call) : exchange(call) {}
  bool announce();  // returns whether it has announced the call
  bool go_on();  // returns whether the call is done here, and the other ranks need nothing more of this rank

  // The announcement in a rank's slot: where the messages begin in its streams, or where its
  // exposed arrays are.
  struct Opening {
    uint64_t base[2] = {};
    HeapPlace arrays[2] = {};  // by StreamKind
  };
  static_assert(sizeof(Opening) <= kInlineNbytes);
  struct Progress {  // of one stage, in rounds
    uint32_t next = 0, count = 0;
    bool is_done() const { return next == count; }
  };
  struct Incoming {  // what this rank reads from one other rank
    Opening opening;
    const std::byte* arrays[2] = {};  // by StreamKind; null: through the ring
    // address of the data for this rank in that rank's private memory; 0: the data is not read from
    // there
    uint64_t private_address = 0;
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
  bool exposes[2] = {};  // by StreamKind: other ranks read this rank's array in place
  Progress put, combined;
  std::vector<Incoming> incoming;   // by rank
  std::vector<uint64_t> positions;  // in the ring, of rounds that are exchanged with other hosts
  uint32_t passed_on = 0;           // number of rounds in `positions` that have been passed on
  std::optional<Trial> trial;

  Incoming& from(Rank peer) { return incoming[static_cast<std::size_t>(peer)]; }
  std::size_t offset(uint32_t round) const { return round * traffic.chunk_nbytes(); }
  Traffic::Span part(const Traffic::Span& all, uint32_t round) const;
  Traffic::Span own_sum() const;  // the part of the output that is combined here
  bool others_want_results() const;
  // Returns the `nbytes` at `begin` of a round's message, or null if they have not been published
  // yet.
  const std::byte* message(Rank peer, StreamKind kind, uint32_t round, std::size_t begin, std::size_t nbytes);
  void take_message(Rank writer, uint32_t round, const Traffic::Span& part, const std::byte* message) const;
  // Calls `visit(offset in the message, offset in the array, bytes)` for each piece of the array in
  // a round's message that `member` writes or reads. If ranks represent parts of other hosts, the
  // message has one piece of each part, one after the other. `is_part` then states whether the
  // array is this rank's own part alone.
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

// The stages. Each advances by one or more rounds if it can, and returns whether it has.
bool put_inputs(Rounds& rounds);                          // rounds_put.cc
bool combine_own_piece(Rounds& rounds);                   // rounds_combine.cc
bool take(Rounds& rounds, StreamKind kind, Rank writer);  // rounds_take.cc

// Between hosts (rounds_inter_domain.cc): a round is exchanged with other hosts before it is passed
// on.
void exchange_between_hosts(Rounds& rounds, uint32_t round, uint64_t position, std::size_t nbytes);
bool pass_on(Rounds& rounds);  // a stage
void hold_what_is_not_passed_on(Rounds& rounds);

// Arrays that other ranks read in place (rounds_exposed.cc).
Rounds::Opening open_rounds(Rounds& rounds);  // decides which arrays are exposed
bool find_arrays(Rounds& rounds, Rank peer);  // finds the exposed arrays of that rank
bool stayed_exposed(Rounds& rounds);          // returns whether the data read from exposed arrays is valid
// returns whether all ranks have finished reading this rank's exposed arrays
bool are_given_back(Rounds& rounds);

// Returns the index of the reader's part in a message of the writer, which has one part for each
// other rank.
inline std::size_t part_number(Rank writer, Rank reader) {
  return static_cast<std::size_t>(reader < writer ? reader : reader - 1);
}

}  // namespace pc::shm
