#include "plan/draw.h"

#include <algorithm>
#include <string>

#include "plan/analysis.h"
#include "plan/walk.h"

namespace pc {
namespace {

constexpr std::size_t kMostInCell = 4;

using Cell = std::vector<std::string>;  // what one rank does in one round
using Row = std::vector<Cell>;

std::string message_text(const Step& step) {
  const Chunks moved = moved_chunks(step);
  std::string text = step.kind == StepKind::kRecvReduce ? "+" : "";
  if (moved.count > 0) text += "c" + std::to_string(moved.first);
  if (moved.count > 1) text += ".." + std::to_string(moved.first + moved.count - 1);
  return text + (step.kind == StepKind::kSend ? ">" : "<") + std::to_string(step.peer);
}

std::string cell_text(const Cell& cell) {
  std::string text;
  for (std::size_t i = 0; i < std::min(cell.size(), kMostInCell); ++i) text += (i == 0 ? "" : " ") + cell[i];
  if (cell.size() > kMostInCell) text += " +" + std::to_string(cell.size() - kMostInCell) + " more";
  return text.empty() ? "-" : text;
}

std::string line_text(const std::vector<std::string>& cells, const std::vector<std::size_t>& widths) {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    line += (i == 0 ? "" : "  ") + cells[i];
    if (i + 1 < cells.size()) line.append(widths[i] - cells[i].size(), ' ');
  }
  return line + "\n";
}

}  // namespace

Result<std::string> draw(PlanSource& plans, uint32_t most_rounds) {
  PC_TRY(plans.check_structure());
  std::vector<Row> rounds;
  const auto note = [&](Rank rank, uint32_t step, uint32_t round) {
    const Step& taken = plans.of(rank).steps[step];
    if (!is_message(taken.kind)) return;
    if (rounds.size() <= round) rounds.resize(round + 1, Row(static_cast<std::size_t>(plans.size())));
    rounds[round][static_cast<std::size_t>(rank)].push_back(message_text(taken));
  };
  PC_ASSIGN_OR_RETURN([[maybe_unused]] const Cost cost,
                      Walk(plans, 0, link_models()[0], nullptr, note).to_the_end());

  std::vector<std::vector<std::string>> table{{"round"}};
  for (Rank rank = 0; rank < plans.size(); ++rank) table[0].push_back("rank " + std::to_string(rank));
  for (std::size_t round = 0; round < std::min<std::size_t>(rounds.size(), most_rounds); ++round) {
    std::vector<std::string> line{std::to_string(round)};
    for (const Cell& cell : rounds[round]) line.push_back(cell_text(cell));
    table.push_back(std::move(line));
  }
  std::vector<std::size_t> widths(table[0].size());
  for (const std::vector<std::string>& line : table) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const std::vector<std::string>& line : table) text += line_text(line, widths);
  if (rounds.size() > most_rounds)
    text += "... and " + std::to_string(rounds.size() - most_rounds) + " rounds more\n";
  return text;
}

}  // namespace pc
