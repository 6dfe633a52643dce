// Rows as objects of JSON, a line each.
#pragma once

#include <string>

#include "bench/table.h"

namespace pc::bench {

std::string json_line(const Options& options, const Scene& scene, const Row& row, const Route& route);

}  // namespace pc::bench
