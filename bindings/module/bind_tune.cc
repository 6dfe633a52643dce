#include "bindings/module/bind_tune.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <tuple>
#include <vector>

#include "bindings/state/errors.h"
#include "tuning/profile.h"

namespace py = pybind11;

namespace pc {
namespace {

using Settings = std::vector<std::tuple<Rank, std::string, std::string>>;  // ranks, name, value

std::vector<std::pair<std::string, std::string>> facts() {
  std::vector<std::pair<std::string, std::string>> all;
  for (MachineFact& fact : machine_facts()) all.emplace_back(fact.name, std::move(fact.value));
  return all;
}

py::dict limits(std::size_t ranks) {
  const shm::Limits usual = shm::usual_limits(ranks);
  py::dict all;
  for (const shm::LimitRow& row : shm::limit_table()) all[py::str(std::string(row.name))] = usual.*row.limit;
  return all;
}

std::string text_of(const State& state, const Settings& settings, const std::string& comment) {
  Tuning tuning;
  for (const auto& [ranks, name, value] : settings) throw_unless_ok(state, tuning.set(ranks, name, value));
  throw_unless_ok(state, tuning.check());
  return profile_text(tuning, machine_facts(), comment);
}

Settings read(const State& state, const std::string& path) {
  const Tuning tuning = value_or_throw(state, read_profile(path, machine_facts()));
  Settings settings;
  for (const Tuning::Setting& each : tuning.settings())
    settings.emplace_back(each.ranks, each.name, each.value);
  return settings;
}

}  // namespace

void bind_tune(py::module_& m, State* state) {
  m.def("_limits", &limits, py::arg("ranks"),
        "The usual limits of shared memory for a group of `ranks` ranks.");
  m.def("_machine_facts", &facts, "The facts about this machine that a profile records.");
  m.def("_usual_profile_path", &usual_profile_path,
        "The path of the default profile; empty if there is no home directory.");
  m.def(
      "_profile_text",
      [state](const Settings& settings, const std::string& comment) {
        return text_of(*state, settings, comment);
      },
      py::arg("settings"), py::arg("comment"),
      "A profile of this machine. Refuses settings that could not be read back.");
  m.def(
      "_read_profile", [state](const std::string& path) { return read(*state, path); }, py::arg("path"),
      "The settings of a profile: ranks, name, value. Raises if this machine refuses it.");
}

}  // namespace pc
