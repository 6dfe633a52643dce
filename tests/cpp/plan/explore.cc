#include "plan/explore.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "plan/contracts.h"

namespace pc {
namespace {

// A value and its number of contributions, in one word: adding words adds both.
uint64_t packed(const Fingerprint& value) { return (value.word << 16) + (value.contributions & 0xffff); }

struct Node {  // one step of one rank
  Rank rank = 0;
  Step step;
  std::size_t lane = 0;      // index over all lanes of all ranks
  std::size_t position = 0;  // in its lane
  std::optional<std::size_t> after = {};
  std::optional<std::size_t> partner = {};
  std::size_t parts = 1;  // number of chunks, which are read and written one by one; 1 if there are none
  std::optional<std::size_t> reads = {}, writes = {};  // index of the first cell
  std::size_t payload = 0;                             // of a send: where its words are stored in transit
};

// What can happen next. Sends and receives are posted as soon as possible, because posting never
// disables another transition.
struct Transition {
  enum Kind { kBegin, kRead, kDeliver, kLocal } kind;
  std::size_t node = 0;  // kBegin: the rank
  std::size_t part = 0;
};

// Bytes: begun ranks, lane positions, and per node posted, parts read, parts delivered; then words:
// cells, payloads. One string, so that states can be compared.
using State = std::string;
constexpr std::size_t kMostParts = 7;  // one bit per part

class Explorer {
 public:
  Explorer(std::span<const Plan> plans, const ExploreOptions& options) : plans_(plans), options_(options) {
    for (const Plan& plan : plans) add_rank(plan);
    connect();
  }

  Exploration run() {
    for (const Node& node : nodes_) {
      if (node.parts > kMostParts) return {"a message of that many chunks is not covered", 0};
    }
    std::vector<State> open{begin()};
    std::unordered_set<State> seen{open.back()};
    while (!open.empty()) {
      const State state = std::move(open.back());
      open.pop_back();
      std::vector<Transition> possible = transitions(state);
      if (possible.empty()) judge_end(state);
      judge_barrier(state);
      if (options_.reduced) keep_one_if_alone(state, possible);
      for (const Transition& transition : possible) {
        State next = after(state, transition);
        if (seen.insert(next).second) open.push_back(std::move(next));
      }
      if (seen.size() > options_.max_states) bad_ = "too many states";
      if (!bad_.empty()) break;
    }
    return {bad_, seen.size()};
  }

 private:
  // Layout of a state.
  std::size_t position_at(std::size_t lane) const { return plans_.size() + lane; }
  std::size_t posted_at(std::size_t node) const { return plans_.size() + lanes_.size() + node; }
  std::size_t read_at(std::size_t send) const { return posted_at(nodes_.size()) + send; }
  std::size_t delivered_at(std::size_t send) const { return read_at(nodes_.size()) + send; }
  std::size_t word_at(std::size_t word) const { return delivered_at(nodes_.size()) + 8 * word; }
  uint64_t word(const State& s, std::size_t index) const {
    uint64_t value;
    std::memcpy(&value, s.data() + word_at(index), sizeof value);
    return value;
  }
  void set_word(State& s, std::size_t index, uint64_t value) const {
    std::memcpy(s.data() + word_at(index), &value, sizeof value);
  }
  std::size_t payload(std::size_t send, std::size_t part) const {
    return cells_.size() + nodes_[send].payload + part;
  }
  static bool has(const State& s, std::size_t at, std::size_t part) { return ((s[at] >> part) & 1) != 0; }
  static void add(State& s, std::size_t at, std::size_t part) {
    s[at] = static_cast<char>(s[at] | (1 << part));
  }
  bool has_all(const State& s, std::size_t at, std::size_t send) const {
    return s[at] == static_cast<char>((1 << nodes_[send].parts) - 1);
  }

  void add_rank(const Plan& plan) {
    const Shape& shape = plan.shape;
    const std::size_t first_node = nodes_.size(), first_lane = lanes_.size(), input = cells_.size();
    const Held in = held(shape, plan.chunks, Area::kInput), out = held(shape, plan.chunks, Area::kOutput);
    const bool one_memory = options_.in_place && in_place(shape.collective) && in.count > 0 && out.count > 0;
    std::size_t output = input;
    if (one_memory) {  // the larger array, which contains the smaller one
      const Held& all = in.count < out.count ? out : in;
      const Chunks both = shared_chunks(shape, plan.chunks);
      for (uint32_t i = 0; i < all.count; ++i) {
        const bool mine = in.count == all.count || all.name(i) - both.first < both.count;
        cells_.push_back(
            packed(mine ? contribution(shape.rank, all.name(i)) : first_output(shape, plan.chunks, i)));
      }
    } else {
      for (uint32_t i = 0; i < in.count; ++i) cells_.push_back(packed(first_input(shape, plan.chunks, i)));
      output = cells_.size();
      for (uint32_t i = 0; i < out.count; ++i) cells_.push_back(packed(first_output(shape, plan.chunks, i)));
    }
    const std::size_t scratch = cells_.size();
    for (uint32_t c = 0; c < plan.scratch_chunks; ++c) {
      cells_.push_back(packed(never_written(shape.rank, Area::kScratch, c)));
    }
    const auto cell = [&](Area area, uint32_t chunk) -> std::size_t {
      if (area == Area::kScratch) return scratch + chunk;
      if (one_memory) return input + chunk - (in.count < out.count ? out : in).first;
      return area == Area::kInput ? input + in.place(chunk) : output + out.place(chunk);
    };
    std::vector<std::size_t>& results = outputs_.emplace_back();
    for (uint32_t i = 0; i < out.count; ++i) results.push_back(cell(Area::kOutput, out.name(i)));
    lanes_.resize(lanes_.size() + plan.lanes);
    for (const Step& step : plan.steps) {
      Node node{.rank = shape.rank, .step = step, .lane = first_lane + step.lane};
      node.position = lanes_[node.lane].size();
      if (step.after > 0) node.after = first_node + step.after - 1;
      const bool receives = step.kind == StepKind::kRecv || step.kind == StepKind::kRecvReduce;
      if (!receives && step.src.count > 0) node.reads = cell(step.src_area, step.src.first);
      if (step.kind != StepKind::kSend && step.dst.count > 0)
        node.writes = cell(step.dst_area, step.dst.first);
      node.parts = std::max<std::size_t>(1, moved_chunks(step).count);
      if (step.kind == StepKind::kSend) {
        node.payload = payload_words_;
        payload_words_ += node.parts;
      }
      lanes_[node.lane].push_back(nodes_.size());
      nodes_.push_back(node);
    }
  }

  void connect() {  // the k-th send of a lane to a peer feeds that peer's k-th receive in that lane from here
    std::map<std::tuple<Rank, Rank, uint8_t>, std::vector<std::size_t>> sends, receives;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = nodes_[i];
      if (node.step.peer < 0) continue;
      if (node.step.kind == StepKind::kSend) {
        sends[{node.rank, node.step.peer, node.step.lane}].push_back(i);
      } else {
        receives[{node.step.peer, node.rank, node.step.lane}].push_back(i);
      }
    }
    for (const auto& [stream, list] : receives) {
      const std::vector<std::size_t>& from = sends[stream];
      for (std::size_t k = 0; k < list.size() && k < from.size(); ++k) {
        nodes_[list[k]].partner = from[k];
        nodes_[from[k]].partner = list[k];
      }
    }
  }

  State begin() const {
    State state(word_at(cells_.size() + payload_words_), '\0');
    // only in a barrier does it matter when ranks begin
    const char begun = synchronizes(plans_[0].shape.collective) ? 0 : 1;
    for (std::size_t rank = 0; rank < plans_.size(); ++rank) state[rank] = begun;
    for (std::size_t c = 0; c < cells_.size(); ++c) set_word(state, c, cells_[c]);
    post_sends(state);
    return state;
  }

  bool is_complete(const State& s, std::size_t i) const {
    const Node& node = nodes_[i];
    if (node.step.kind == StepKind::kSend)
      return has_all(s, options_.rendezvous ? delivered_at(i) : read_at(i), i);
    return static_cast<std::size_t>(s[position_at(node.lane)]) > node.position;
  }
  // Returns true if the step has started (for a receive: is posted) or could start, which is
  // equivalent.
  bool is_at_front(const State& s, std::size_t i) const {
    const Node& node = nodes_[i];
    return s[static_cast<std::size_t>(node.rank)] != 0 &&
           static_cast<std::size_t>(s[position_at(node.lane)]) == node.position &&
           (!node.after || is_complete(s, *node.after));
  }

  void post_sends(State& s) const {
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
      for (char& position = s[position_at(lane)]; static_cast<std::size_t>(position) < lanes_[lane].size();
           ++position) {
        const std::size_t i = lanes_[lane][static_cast<std::size_t>(position)];
        if (nodes_[i].step.kind != StepKind::kSend || !is_at_front(s, i)) break;
        s[posted_at(i)] = 1;
      }
    }
  }

  std::vector<Transition> transitions(const State& s) const {
    std::vector<Transition> result;
    for (std::size_t rank = 0; rank < plans_.size(); ++rank) {
      if (s[rank] == 0) result.push_back({Transition::kBegin, rank});
    }
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = nodes_[i];
      const bool at_front = is_at_front(s, i);
      for (std::size_t part = 0; part < node.parts; ++part) {
        if (node.step.kind == StepKind::kSend) {
          const bool readable = s[posted_at(i)] != 0 && !has(s, read_at(i), part);
          const bool wanted = !options_.rendezvous || (node.partner && is_at_front(s, *node.partner));
          if (readable && wanted) result.push_back({Transition::kRead, i, part});
        } else if (at_front && node.step.peer < 0) {
          result.push_back({Transition::kLocal, i, part});
        } else if (at_front && node.partner && has(s, read_at(*node.partner), part) &&
                   !has(s, delivered_at(*node.partner), part)) {
          result.push_back({Transition::kDeliver, i, part});
        }
      }
    }
    return result;
  }

  State after(const State& before, const Transition& transition) {
    State s = before;
    const auto [kind, i, part] = transition;
    if (kind == Transition::kBegin) {
      s[i] = 1;
    } else if (kind == Transition::kRead) {
      add(s, read_at(i), part);
      if (nodes_[i].reads) set_word(s, payload(i, part), word(s, *nodes_[i].reads + part));
    } else {
      const Node& node = nodes_[i];
      uint64_t operand = node.reads ? word(s, *node.reads) : 0;
      if (kind == Transition::kDeliver) {
        operand = word(s, payload(*node.partner, part));
        set_word(s, payload(*node.partner, part), 0);
        add(s, delivered_at(*node.partner), part);
      }
      if (node.writes)
        set_word(s, *node.writes + part, result_of(node, word(s, *node.writes + part), operand));
      const bool complete =
          kind == Transition::kLocal || has_all(s, delivered_at(*node.partner), *node.partner);
      if (complete) ++s[position_at(node.lane)];
    }
    post_sends(s);
    return s;
  }

  uint64_t result_of(const Node& node, uint64_t dst, uint64_t operand) {
    if (node.step.kind == StepKind::kRecv || node.step.kind == StepKind::kCopy) return operand;
    if ((dst & 0xffff) != node.step.dst_weight || (operand & 0xffff) != node.step.src_weight)
      bad_ = "wrong weights";
    return dst + operand;
  }

  void judge_end(const State& s) {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const bool send = nodes_[i].step.kind == StepKind::kSend;
      if (send ? !has_all(s, delivered_at(i), i) : !is_complete(s, i)) bad_ = "deadlock";
    }
    for (std::size_t rank = 0; rank < plans_.size() && bad_.empty(); ++rank) {
      const Plan& plan = plans_[rank];
      for (uint32_t i = 0; i < outputs_[rank].size(); ++i) {
        if (word(s, outputs_[rank][i]) != packed(wanted_output(plan.shape, plan.chunks, i)))
          bad_ = "wrong result";
      }
    }
  }

  void judge_barrier(const State& s) {
    std::vector<bool> ended(plans_.size(), true);
    bool all_begun = true;
    for (std::size_t rank = 0; rank < plans_.size(); ++rank) {
      if (s[rank] == 0) all_begun = ended[rank] = false;
    }
    if (all_begun) return;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (!is_complete(s, i)) ended[static_cast<std::size_t>(nodes_[i].rank)] = false;
    }
    for (const bool rank_ended : ended) {
      if (rank_ended) bad_ = "a rank ends before all have begun";
    }
  }

  // If no step that can still run without a transition touches its memory, the time of the
  // transition does not matter.
  void keep_one_if_alone(const State& s, std::vector<Transition>& possible) const {
    for (const Transition& transition : possible) {
      if (transition.kind == Transition::kBegin || !is_alone(s, transition)) continue;
      possible = {transition};
      return;
    }
  }

  bool is_alone(const State& s, const Transition& transition) const {
    const Node& self = nodes_[transition.node];
    // The steps that certainly wait for the transition: by lane, from that position on.
    std::map<std::size_t, std::size_t> waiting;
    for (const Node& node : nodes_) {
      const bool waits =
          node.after == transition.node ||
          (transition.kind != Transition::kRead && node.lane == self.lane && node.position > self.position);
      if (!waits) continue;
      const auto [entry, added] = waiting.try_emplace(node.lane, node.position);
      entry->second = std::min(entry->second, node.position);
    }
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const Node& other = nodes_[i];
      if (i == transition.node || other.rank != self.rank || is_complete(s, i)) continue;
      const auto entry = waiting.find(other.lane);
      if (entry != waiting.end() && other.position >= entry->second) continue;
      for (std::size_t part = 0; part < other.parts; ++part) {
        if (has_touched(s, i, part)) continue;
        const std::size_t mine = transition.part;
        if (touch_same(other.writes, part, self.reads, mine) ||
            touch_same(other.writes, part, self.writes, mine) ||
            touch_same(other.reads, part, self.writes, mine)) {
          return false;
        }
      }
    }
    return true;
  }
  bool has_touched(const State& s, std::size_t i, std::size_t part) const {
    const Node& node = nodes_[i];
    if (node.step.kind == StepKind::kSend) return has(s, read_at(i), part);
    return node.partner && has(s, delivered_at(*node.partner), part);
  }
  static bool touch_same(std::optional<std::size_t> a, std::size_t a_part, std::optional<std::size_t> b,
                         std::size_t b_part) {
    return a && b && *a + a_part == *b + b_part;
  }

  std::span<const Plan> plans_;
  ExploreOptions options_;
  std::vector<Node> nodes_;
  std::vector<std::vector<std::size_t>> lanes_;    // nodes in order
  std::vector<uint64_t> cells_;                    // initial values
  std::vector<std::vector<std::size_t>> outputs_;  // [rank]: the cells that hold the result
  std::size_t payload_words_ = 0;
  std::string bad_;
};

}  // namespace

Exploration explore(std::span<const Plan> plans, const ExploreOptions& options) {
  return Explorer(plans, options).run();
}

}  // namespace pc
