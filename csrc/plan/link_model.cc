#include "plan/link_model.h"

namespace pc {
namespace {

// Round figures for idle links. The first is the default; otherwise the order does not matter.
constexpr LinkModel kLinkModels[] = {
    {"loopback", 4e-6, 2e-6, 1 / 2.0e9, 1 / 8.0e9, "TCP within a host, two cores of an AMD EPYC"},
    {"shared_memory", 0.5e-6, 0.2e-6, 1 / 8.0e9, 1 / 8.0e9,
     "memory of one socket: about 8 GB/s for one core"},
    {"ethernet_10g", 15e-6, 5e-6, 1 / 1.17e9, 1 / 8.0e9,
     "TCP through one switch; 94 percent of 10 Gbit/s are left after frames and headers"},
    {"ethernet_100g", 8e-6, 3e-6, 1 / 11.0e9, 1 / 8.0e9,
     "TCP through one switch; 88 percent of 100 Gbit/s with jumbo frames"},
};

}  // namespace

std::span<const LinkModel> link_models() { return kLinkModels; }

const LinkModel* find_link_model(std::string_view name) {
  for (const LinkModel& model : kLinkModels) {
    if (model.name == name) return &model;
  }
  return nullptr;
}

}  // namespace pc
