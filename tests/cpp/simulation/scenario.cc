#include "simulation/scenario.h"

#include <algorithm>

namespace pc::simulation {
namespace {

std::vector<Rank> shuffled_ranks(Rank ranks, Dice& dice) {
  std::vector<Rank> all;
  for (Rank rank = 0; rank < ranks; ++rank)
    all.insert(all.begin() + static_cast<std::ptrdiff_t>(dice.below(all.size() + 1)), rank);
  return all;
}

void add_program(Scenario& s, Dice& dice) {
  const Time usual = dice.chance(50) ? milliseconds(2) : milliseconds(30);
  for (std::size_t i = 0, n = 4 + dice.below(std::size_t{10}); i < n; ++i) {
    Step step;
    step.group = s.groups.size() > 1 && dice.chance(35) ? kSubGroup : kWorldGroup;
    step.kind = static_cast<Kind>(dice.below(3));
    const std::vector<Rank>& members = s.groups[step.group];
    step.root = members[dice.below(members.size())];
    step.think = dice.chance(8) ? milliseconds(1500) : usual;
    s.steps.push_back(step);
  }
  s.sub_known_from = dice.below(s.steps.size());
  for (std::size_t i = 0; i < s.sub_known_from; ++i) {
    if (s.steps[i].group == kSubGroup) s.sub_known_from = i;
  }
}

void add_fault(Scenario& s, bool all_live, Dice& dice) {
  Fault f;
  f.what = static_cast<Fault::What>(dice.below(all_live ? 5 : 8));
  f.step = dice.below(s.steps.size());
  const std::vector<Rank>& members = s.groups[s.steps[f.step].group];
  f.rank = members[dice.below(members.size())];
  f.when = dice.within(dice.chance(70) ? milliseconds(200) : milliseconds(2000));
  f.lasts = dice.within(dice.chance(50) ? milliseconds(100) : milliseconds(1500));
  const bool at_a_step = f.what != Fault::What::kInterrupt && f.what != Fault::What::kStop &&
                         f.what != Fault::What::kDie && f.what != Fault::What::kCut;
  if (at_a_step) f.when = milliseconds(2000), f.lasts = dice.within(milliseconds(300));
  const bool hurts =
      f.what == Fault::What::kDie || f.what == Fault::What::kExit || f.what == Fault::What::kCut;
  if (hurts && f.rank == s.healthy) return;
  if (f.what == Fault::What::kCut) {
    f.other = dice.below(s.ranks);
    if (f.other == f.rank || f.other == s.healthy) return;
  }
  s.faults.push_back(f);
}

}  // namespace

bool Scenario::has(Fault::What what, Rank rank, std::size_t step) const {
  return std::any_of(faults.begin(), faults.end(),
                     [&](const Fault& f) { return f.what == what && f.rank == rank && f.step == step; });
}

Scenario make_scenario(Dice& dice) {
  Scenario s;
  s.ranks = 2 + dice.below(7);
  const bool one_host = dice.chance(60);
  for (Rank rank = 0; rank < s.ranks; ++rank) s.host.push_back(one_host ? 0 : dice.below(2));
  s.groups[kWorldGroup] = shuffled_ranks(s.ranks, dice);
  std::sort(s.groups[kWorldGroup].begin(), s.groups[kWorldGroup].end());
  if (s.ranks > 2 && dice.chance(50)) {
    s.groups[kSubGroup] = shuffled_ranks(s.ranks, dice);
    s.groups[kSubGroup].resize(2 + dice.below(static_cast<std::size_t>(s.ranks) - 2));
  }
  add_program(s, dice);
  s.healthy = dice.below(s.ranks);
  const bool all_live = dice.chance(50);
  for (int i = dice.below(all_live ? 8 : 4); i > 0; --i) add_fault(s, all_live, dice);
  for (const Fault& f : s.faults) s.quiet = std::max(s.quiet, f.when + f.lasts);
  s.slowest = dice.chance(50) ? milliseconds(3) : milliseconds(50);
  s.detects_percent = dice.below(3) * 50;
  s.waits_for_report = dice.chance(70);
  return s;
}

std::string describe(const Scenario& s) {
  static constexpr const char* kFaults[] = {
      "other call", "other root", "short deadline", "interrupt", "stop", "die", "cut", "exit"};
  static constexpr const char* kKinds[] = {"all", "rooted", "barrier"};
  std::string text = std::to_string(s.ranks) + " ranks, hosts";
  for (const int host : s.host) text += " " + std::to_string(host);
  for (const auto& [group, members] : s.groups) {
    text += "\ngroup " + std::to_string(group) + ":";
    for (const Rank rank : members) text += " " + std::to_string(rank);
  }
  for (std::size_t i = 0; i < s.steps.size(); ++i) {
    text += "\nstep " + std::to_string(i) + ": " + kKinds[static_cast<std::size_t>(s.steps[i].kind)] +
            " in group " + std::to_string(s.steps[i].group) + ", root " + std::to_string(s.steps[i].root);
  }
  for (const Fault& f : s.faults) {
    text += std::string("\nfault: ") + kFaults[static_cast<std::size_t>(f.what)] + ", rank " +
            std::to_string(f.rank) + ", other " + std::to_string(f.other) + ", step " +
            std::to_string(f.step) + ", at " + std::to_string(f.when.count()) + " us, for " +
            std::to_string(f.lasts.count()) + " us";
  }
  return text + "\nquiet after " + std::to_string(s.quiet.count()) + " us, the healthy one is rank " +
         std::to_string(s.healthy) + "\n";
}

}  // namespace pc::simulation
