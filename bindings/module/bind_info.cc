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

// Returns facts about the current world that init() has stored. Returns None if there is no world
// or it belongs to the parent process.
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

// Returns None if the kernel does not report it.
py::object available() {
  const uint64_t nbytes = available_memory();
  return nbytes == UINT64_MAX ? py::object(py::none()) : py::int_(nbytes);
}

}  // namespace

void bind_info(py::module_& module, State* state) {
  module.def(
      "_world_facts", [state] { return world_facts(*state); },
      "Facts about the current world: rank, size, local rank and size, hosts and addresses by rank, the "
      "ranks that share memory with this one, why there are none, the group count. None without a world.");
  module.def(
      "_memory_room", [] { return available(); },
      "Bytes that this process can still allocate before the kernel ends processes; None if unknown.");
}

}  // namespace pc
