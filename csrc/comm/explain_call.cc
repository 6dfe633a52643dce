#include "comm/explain_call.h"

#include <cstdio>

#include "engine/hierarchical/group_table.h"
#include "engine/shm/shared_executor.h"
#include "plan/contracts.h"
#include "plan/cost.h"
#include "plan/draw.h"

namespace pc {
namespace {

constexpr std::size_t kMostShownSteps = 64;
constexpr uint64_t kMostWalkedSteps = 5'000'000;  // takes about a second

std::string seconds_text(double seconds) {
  const auto [factor, unit] = seconds < 1e-3  ? std::pair{1e6, "us"}
                              : seconds < 1.0 ? std::pair{1e3, "ms"}
                                              : std::pair{1.0, "s"};
  char text[48];
  std::snprintf(text, sizeof text, "%.3g %s", seconds * factor, unit);
  return text;
}

std::string count_text(uint64_t count, const char* one, const char* many) {
  return std::to_string(count) + " " + (count == 1 ? one : many);
}

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

Status cannot_explain(const std::string& why) { return invalid_argument("explain: " + why); }

Status check_call(const ExplainedCall& call) {
  if (call.group.size < 1 || call.group.size > kMostRanks)
    return cannot_explain("size must be 1 to 65535, not " + std::to_string(call.group.size));
  if (call.group.hosts < 1 || call.group.hosts > call.group.size)
    return cannot_explain("hosts must be 1 to the number of ranks, not " + std::to_string(call.group.hosts));
  const auto is_rank = [&](Rank rank) { return rank >= 0 && rank < call.group.size; };
  if (!is_rank(call.root))
    return cannot_explain("root " + std::to_string(call.root) + " is no rank of this group");
  if (call.rank != -1 && !is_rank(call.rank))
    return cannot_explain("rank " + std::to_string(call.rank) + " is no rank of this group");
  return Status::ok();
}

Result<LinkModel> model_of(const ExplainedCall& call) {
  const std::string_view usual = call.group.hosts == 1 ? "loopback" : "ethernet_10g";
  if (const LinkModel* model = find_link_model(call.model.empty() ? usual : call.model)) return *model;
  std::string known;
  for (const LinkModel& model : link_models()) known += (known.empty() ? "" : ", ") + std::string(model.name);
  return cannot_explain("model \"" + std::string(call.model) + "\" is not one of " + known);
}

// `seconds` is negative if the prediction would take too long.
struct Prediction {
  double seconds = -1;
  Cost cost;
};
Result<Prediction> predicted(const Choice& choice, const ExplainedCall& call, const LinkModel& model) {
  const Shape shape{call.collective, 0, call.group.size, call.root, choice.split};
  BuiltPlans plans(*choice.algorithm, shape, kMostWalkedSteps * sizeof(Step));
  if (plans.steps() > kMostWalkedSteps) return Prediction{};
  PC_ASSIGN_OR_RETURN(const Cost cost, predict(plans, call.nbytes, model));
  return Prediction{cost.seconds, cost};
}

std::string cost_text(const Prediction& prediction, const LinkModel& model) {
  if (prediction.seconds < 0) return "not here, the plans are too long: see pycollective plan simulate";
  return seconds_text(prediction.seconds) + " (" + std::string(model.name) + "), " +
         count_text(prediction.cost.rounds, "round", "rounds") + ", at most " +
         count_text(prediction.cost.most_nbytes, "byte", "bytes") + " sent by a rank";
}

std::string compared(double seconds, double chosen) {
  if (seconds < 0 || chosen < 0) return "not predicted, the plans are too long";
  std::string text = padded(seconds_text(seconds), 9);
  if (seconds == chosen) return text + " as fast";
  char factor[48];
  std::snprintf(factor, sizeof factor, " %.3g times ",
                seconds > chosen ? seconds / chosen : chosen / seconds);
  return text + factor +
         (seconds > chosen ? "slower" : "faster by this model; the table goes by measurements");
}

Result<std::string> others_text(const Choice& chosen, double chosen_seconds, const ExplainedCall& call,
                                const LinkModel& model) {
  std::string text;
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.collective != call.collective || &algorithm == chosen.algorithm) continue;
    const Choice other{&algorithm,
                       split_for(algorithm, usual_chunk_nbytes(algorithm), call.nbytes, call.group.size)};
    std::string line = padded(std::string(algorithm.name), 20);
    if (!algorithm.supports({call.collective, 0, call.group.size, call.root, other.split})) {
      text += "  " + line + "not for " + count_text(static_cast<uint64_t>(call.group.size), "rank", "ranks") +
              "\n";
      continue;
    }
    PC_ASSIGN_OR_RETURN(const Prediction prediction, predicted(other, call, model));
    line += compared(prediction.seconds, chosen_seconds);
    if (other.split > 1) line += " (split " + std::to_string(other.split) + ")";
    text += "  " + line + "\n";
  }
  return text.empty() ? text : "others:\n" + text;
}

std::string first_steps(const Plan& plan) {
  const std::string all = explain(plan);
  std::size_t end = 0;
  for (std::size_t line = 0; line <= kMostShownSteps && end != std::string::npos; ++line)
    end = all.find('\n', end + 1);
  if (plan.steps.size() <= kMostShownSteps || end == std::string::npos) return all;
  return all.substr(0, end + 1) + "  ... and " + std::to_string(plan.steps.size() - kMostShownSteps) +
         " steps more: see pycollective plan show\n";
}

// Returns an empty text if there is no measured profile.
std::string profile_text_for(const Profile* profile, Rank size) {
  if (profile == nullptr || profile->origin.empty()) return "";
  std::string text = "profile:   " + profile->origin;
  if (profile->origin.starts_with("refused")) return text + "\n";
  const std::string settings = profile->tuning.text_of(size);
  return text + ": " +
         (settings.empty() ? "nothing but the defaults for " + std::to_string(size) + " ranks" : settings) +
         "\n";
}

}  // namespace

Result<std::string> explain_shared_call(const ExplainedCall& call, Rank size) {
  ExplainedCall here = call;
  here.group = {size, 1};
  PC_TRY(check_call(here));
  const std::size_t ranks = static_cast<std::size_t>(size);
  const shm::Limits limits = call.profile == nullptr ? shm::usual_limits(ranks)
                                                     : shm::limits_for(call.profile->tuning.limits(), ranks);
  return std::string(name_of(call.collective)) + " of " + count_text(call.nbytes, "byte", "bytes") + ", " +
         count_text(static_cast<uint64_t>(size), "rank", "ranks") + " on 1 host\n" +
         "transport: shared memory\n" + "algorithm: shared_memory (" +
         shm::describe(call.collective, call.nbytes, size, limits) + ")\n" +
         "because:   all ranks of the group have passed each other their memory; PYCOLLECTIVE_TRANSPORT=tcp, "
         "or "
         "a table of algorithms in PYCOLLECTIVE_TUNE, runs plans over TCP instead\n" +
         profile_text_for(call.profile, size);
}

Result<std::string> explain_divided_call(const ExplainedCall& call, Rank size,
                                         const shm::ShmDomains& domains) {
  ExplainedCall here = call;
  here.group = {size, domains.count};
  PC_TRY(check_call(here));
  const std::string ranks = domains.even()
                                ? std::to_string(domains.most)
                                : std::to_string(domains.least) + " to " + std::to_string(domains.most);
  return std::string(name_of(call.collective)) + " of " + count_text(call.nbytes, "byte", "bytes") + ", " +
         count_text(static_cast<uint64_t>(size), "rank", "ranks") + " on " + std::to_string(domains.count) +
         " hosts\n" + "transport: shared memory on each host, " + std::string(call.transport) +
         " between them\n" + "algorithm: hierarchical (" +
         shm::describe_hierarchical(call.collective, call.nbytes, domains) + ")\n" + "because:   " + ranks +
         " ranks on each host have passed each other their memory; PYCOLLECTIVE_TRANSPORT=tcp, or a table of "
         "algorithms in PYCOLLECTIVE_TUNE, runs one plan over all ranks instead\n" +
         profile_text_for(call.profile, size);
}

Result<std::string> explain_call(const ExplainedCall& call, const SelectionTable& table) {
  PC_TRY(check_call(call));
  PC_ASSIGN_OR_RETURN(const LinkModel model, model_of(call));
  const Choice choice = table.choose(call.collective, call.nbytes, call.group);
  PC_ASSIGN_OR_RETURN(const Prediction prediction, predicted(choice, call, model));
  PC_ASSIGN_OR_RETURN(const std::string others, others_text(choice, prediction.seconds, call, model));
  const Algorithm& algorithm = *choice.algorithm;
  std::string text = std::string(name_of(call.collective)) + " of " +
                     count_text(call.nbytes, "byte", "bytes") + ", " +
                     count_text(static_cast<uint64_t>(call.group.size), "rank", "ranks") + " on " +
                     count_text(static_cast<uint64_t>(call.group.hosts), "host", "hosts") + "\n";
  if (!call.transport.empty()) text += "transport: " + std::string(call.transport) + "\n";
  text += "algorithm: " + std::string(algorithm.name) + " (" + std::string(algorithm.summary) + ")\n" +
          "because:   the first row of the table that fits is " + table.row_text(choice.row) +
          (table.is_measured(choice.row) ? ", measured here" : "") + "\n" +
          profile_text_for(call.profile, call.group.size) + "split:     " + std::to_string(choice.split) +
          "\n" + "predicted: " + cost_text(prediction, model) + "\n" + others;
  const Shape shape{call.collective, std::max(call.rank, 0), call.group.size, call.root, choice.split};
  text += first_steps(algorithm.build(shape));
  if (call.group.size == 1 || call.group.size > kMostDrawnRanks) return text;
  BuiltPlans plans(algorithm, shape);
  PC_ASSIGN_OR_RETURN(const std::string drawn, draw(plans));
  return text + drawn;
}

}  // namespace pc
