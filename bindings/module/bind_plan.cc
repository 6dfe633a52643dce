#include "bindings/module/bind_plan.h"

#include <pybind11/pybind11.h>

#include <functional>
#include <string>
#include <utility>

#include "base/env.h"
#include "bindings/state/errors.h"
#include "comm/explain_call.h"
#include "plan/contracts.h"
#include "plan/draw.h"
#include "plan/simulate.h"

namespace py = pybind11;

namespace pc {
namespace {

Collective to_collective(const State& state, const std::string& name) {
  if (const std::optional<Collective> collective = collective_from_name(name)) return *collective;
  std::string known;
  for (int c = 0; c < kCollectiveCount; ++c)
    known += (c == 0 ? "" : ", ") + std::string(name_of(static_cast<Collective>(c)));
  refuse_and_throw(state, "collective \"" + name + "\" is not one of " + known);
}

const Algorithm& to_algorithm(const State& state, Collective collective, const std::string& name) {
  if (const Algorithm* algorithm = find_algorithm(collective, name)) return *algorithm;
  std::string known;
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.collective == collective)
      known += (known.empty() ? "" : ", ") + std::string(algorithm.name);
  }
  refuse_and_throw(state, "algorithm \"" + name + "\" is not one of those for " +
                              std::string(name_of(collective)) + ": " + known);
}

const LinkModel& to_model(const State& state, const std::string& name) {
  if (const LinkModel* model = find_link_model(name)) return *model;
  std::string known;
  for (const LinkModel& model : link_models()) known += (known.empty() ? "" : ", ") + std::string(model.name);
  refuse_and_throw(state, "model \"" + name + "\" is not one of " + known);
}

bool some_shape(const Algorithm& algorithm, const std::function<bool(Shape&)>& wanted) {
  for (Rank size = 1; size <= 64; ++size) {
    Shape shape{algorithm.collective, 0, size};
    if (wanted(shape) && algorithm.supports(shape)) return true;
  }
  return false;
}

// Describes the supported shapes ("any number of ranks"), determined by trying some.
std::string shapes_text(const Algorithm& algorithm) {
  const bool any_size = some_shape(algorithm, [](Shape& shape) { return shape.size == 3; });
  const bool uneven = some_shape(algorithm, [](Shape& shape) {
    shape.even = false;
    return shape.size == 4;
  });
  std::string text = any_size ? "any number of ranks" : "powers of two";
  if (has_parts(algorithm.collective)) text += uneven ? ", parts of any size" : ", equal parts";
  if (algorithm.pipelines != Pipelines::kNot) text += ", split";
  return text;
}

py::list catalog() {
  py::list rows;
  for (const Algorithm& algorithm : algorithms()) {
    py::dict row;
    row["collective"] = std::string(name_of(algorithm.collective));
    row["algorithm"] = std::string(algorithm.name);
    row["shapes"] = shapes_text(algorithm);
    row["cost"] = std::string(algorithm.summary);
    row["source"] = std::string(algorithm.source);
    rows.append(row);
  }
  return rows;
}

py::dict models() {
  py::dict rows;
  for (const LinkModel& model : link_models())
    rows[py::str(std::string(model.name))] = std::string(model.about);
  return rows;
}

struct Subject {  // the arguments that every command takes
  std::string collective, algorithm;
  int size, root, split;
};

std::pair<const Algorithm*, Shape> to_shape(const State& state, const Subject& subject, bool even = true) {
  const Collective collective = to_collective(state, subject.collective);
  const Algorithm& algorithm = to_algorithm(state, collective, subject.algorithm);
  if (subject.split < 1)
    refuse_and_throw(state, "split must be at least 1, not " + std::to_string(subject.split));
  if (subject.split > 1 && algorithm.pipelines == Pipelines::kNot)
    refuse_and_throw(state, subject.algorithm + " " + subject.collective + " cannot be split");
  if (subject.root < 0 || subject.root >= subject.size)
    refuse_and_throw(
        state, "root " + std::to_string(subject.root) + " is no rank of " + std::to_string(subject.size));
  const Shape shape{collective, 0, subject.size, subject.root, static_cast<uint32_t>(subject.split), even};
  if (!algorithm.supports(shape)) {
    refuse_and_throw(state, subject.algorithm + " " + subject.collective + " is not for " +
                                std::to_string(subject.size) + " ranks: it supports " +
                                shapes_text(algorithm));
  }
  return {&algorithm, shape};
}

// Runs f without the GIL, because a world of thousands of ranks takes seconds.
template <class F>
auto unlocked(F f) {
  const py::gil_scoped_release unlocked;
  return f();
}

std::string steps(const State& state, const Subject& subject, int rank) {
  auto [algorithm, shape] = to_shape(state, subject);
  if (rank < 0 || rank >= shape.size)
    refuse_and_throw(state, "rank " + std::to_string(rank) + " is no rank of " + std::to_string(shape.size));
  shape.rank = rank;
  return explain(algorithm->build(shape));
}

std::string drawing(const State& state, const Subject& subject) {
  const auto [algorithm, shape] = to_shape(state, subject);
  BuiltPlans plans(*algorithm, shape);
  return value_or_throw(state, draw(plans));
}

Status check_either_way(PlanSource& plans, bool* one_pass) {
  *one_pass = !fits_full_check(plans);
  if (*one_pass) return check_one_pass(plans);
  std::vector<Plan> all;
  for (Rank rank = 0; rank < plans.size(); ++rank) all.push_back(plans.of(rank));
  return check(all);
}

py::dict checked(const State& state, const Subject& subject, bool even) {
  const auto [algorithm, shape] = to_shape(state, subject, even);
  bool one_pass = false;
  const Status status = unlocked([&, algorithm = algorithm, shape = shape] {
    BuiltPlans plans(*algorithm, shape);
    return check_either_way(plans, &one_pass);
  });
  py::dict result;
  result["error"] = status.is_ok() ? "" : status.to_string();
  result["method"] = one_pass ? "one pass" : "clocks";
  return result;
}

// Returns false for variants that make no difference: a split of a call that is not pipelined, or
// uneven parts of a call without parts.
bool supported(const State& state, const Subject& subject, bool even) {
  const Collective collective = to_collective(state, subject.collective);
  const Algorithm& algorithm = to_algorithm(state, collective, subject.algorithm);
  if (subject.split > 1 && algorithm.pipelines == Pipelines::kNot) return false;
  if (!even && !has_parts(collective)) return false;
  return algorithm.supports(
      {collective, 0, subject.size, subject.root, static_cast<uint32_t>(subject.split), even});
}

py::dict simulated(const State& state, const Subject& subject, uint64_t nbytes,
                   const std::string& model_name) {
  const LinkModel& model = to_model(state, model_name);
  const auto [algorithm, shape] = to_shape(state, subject);
  Result<Cost> run = unlocked([&, algorithm = algorithm, shape = shape] {
    BuiltPlans plans(*algorithm, shape);
    return simulate(plans, nbytes, model);
  });
  const Cost cost = value_or_throw(state, std::move(run));
  py::dict result;
  result["steps"] = cost.steps;
  result["messages"] = cost.messages;
  result["rounds"] = cost.rounds;
  result["sent_nbytes_least"] = cost.least_nbytes;
  result["sent_nbytes_most"] = cost.most_nbytes;
  result["seconds"] = cost.seconds;
  result["exact"] = cost.exact;
  return result;
}

std::string explained(const State& state, const std::string& collective, uint64_t nbytes, int root,
                      const GroupShape& group, int rank, const std::string& model) {
  const std::string tune = value_or_throw(state, env_text(Env::kTune));
  const SelectionTable table = value_or_throw(state, SelectionTable::parse(tune));
  const std::string named = value_or_throw(state, env_text(Env::kProfile));
  // No warnings: the explanation includes them.
  const Profile profile = value_or_throw(state, load_profile(named, Logger(LogLevel::kError)));
  const SelectionTable here = profile.tuning.selection(table, group);
  const ExplainedCall call{to_collective(state, collective), nbytes, root, group, rank, {}, model, &profile};
  return value_or_throw(state, unlocked([&] { return explain_call(call, here); }));
}

}  // namespace

void bind_plan(py::module_& m, State* state) {
  using std::string;
  m.def("_plan_catalog", &catalog, "A dict per algorithm: collective, algorithm, shapes, cost, source.");
  m.def("_plan_models", &models, "A description of each link model, by name.");
  m.def(
      "_plan_supports",
      [state](const string& collective, const string& algorithm, int size, int root, int split, bool even) {
        return supported(*state, {collective, algorithm, size, root, split}, even);
      },
      py::arg("collective"), py::arg("algorithm"), py::arg("size"), py::arg("root"), py::arg("split"),
      py::arg("even"), "False also for variants that make no difference: a split where nothing is cut.");
  m.def(
      "_plan_steps",
      [state](const string& collective, const string& algorithm, int size, int root, int split, int rank) {
        return steps(*state, {collective, algorithm, size, root, split}, rank);
      },
      py::arg("collective"), py::arg("algorithm"), py::arg("size"), py::arg("root"), py::arg("split"),
      py::arg("rank"), "The steps of one rank, one line each.");
  m.def(
      "_plan_drawing",
      [state](const string& collective, const string& algorithm, int size, int root, int split) {
        return drawing(*state, {collective, algorithm, size, root, split});
      },
      py::arg("collective"), py::arg("algorithm"), py::arg("size"), py::arg("root"), py::arg("split"),
      "The messages of all ranks, one column each.");
  m.def(
      "_plan_check",
      [state](const string& collective, const string& algorithm, int size, int root, int split, bool even) {
        return checked(*state, {collective, algorithm, size, root, split}, even);
      },
      py::arg("collective"), py::arg("algorithm"), py::arg("size"), py::arg("root"), py::arg("split"),
      py::arg("even"), "{'error': '' or what is wrong, 'method': 'clocks' or 'one pass'}.");
  m.def(
      "_plan_simulate",
      [state](const string& collective, const string& algorithm, int size, int root, int split,
              uint64_t nbytes, const string& model) {
        return simulated(*state, {collective, algorithm, size, root, split}, nbytes, model);
      },
      py::arg("collective"), py::arg("algorithm"), py::arg("size"), py::arg("root"), py::arg("split"),
      py::arg("nbytes"), py::arg("model"));
  m.def(
      "_plan_explain",
      [state](const string& collective, uint64_t nbytes, int root, int size, int hosts, int rank,
              const string& model) {
        return explained(*state, collective, nbytes, root, {size, hosts}, rank, model);
      },
      py::arg("collective"), py::arg("nbytes"), py::arg("root"), py::arg("size"), py::arg("hosts"),
      py::arg("rank"), py::arg("model"));
}

}  // namespace pc
