#include "bindings/module/bind_info.h"

#include <pybind11/pybind11.h>

#include <array>
#include <cstdint>
#include <memory>

#include "bindings/state/group_object.h"
#include "shm/available_memory.h"

namespace py = pybind11;

namespace pc {
namespace {

// Of the current world, from what init() left here. None: there is none, or it is the parent process's.
py::object world_facts(const State& state) {
  if (state.world == nullptr || state.world->session->forked) return py::none();
  const std::shared_ptr<Runtime> runtime = state.world->session->runtime;
  if (runtime == nullptr) return py::none();
  const GroupObject& world = *state.world;
  const auto [rank, size, local_rank, local_size] =
      std::array{world.rank, world.size, world.local_rank, world.local_size};
  const HostMap& map = runtime->hosts();
  const HostMap::Entry& here = map.ranks[static_cast<std::size_t>(rank)];
  py::list hosts, addresses, local_peers;
  for (std::size_t other = 0; other < map.ranks.size(); ++other) {
    hosts.append(map.ranks[other].host_name);
    if (here.why_alone.empty() && map.ranks[other].domain == here.domain) local_peers.append(other);
  }
  for (const std::string& address : runtime->addresses()) addresses.append(address);
  return py::make_tuple(rank, size, local_rank, local_size, py::tuple(hosts), py::tuple(addresses),
                        py::tuple(local_peers), here.why_alone, runtime->group_count() + 1);
}

// None where the kernel does not say.
py::object available() {
  const uint64_t nbytes = available_memory();
  return nbytes == UINT64_MAX ? py::object(py::none()) : py::int_(nbytes);
}

}  // namespace

void bind_info(py::module_& module, State* state) {
  module.def(
      "_world_facts", [state] { return world_facts(*state); },
      "Of the current world: rank, size, local rank and size, hosts and addresses by rank, the ranks that "
      "this one shares memory with, why there are none, and the number of groups. None without a world.");
  module.def(
      "_memory_room", [] { return available(); },
      "Bytes that this process may still take before the kernel begins to end processes; None: unknown.");
}

}  // namespace pc
