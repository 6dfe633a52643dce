// Every plan that differs from a given one by a single error.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace pc {

// Calls `visit` with each mutant and the edit, e.g. "after" and "rank 2 step 3: after 1".
void for_each_mutant(const std::vector<Plan>& plans,
                     const std::function<void(std::span<const Plan>, const std::string& field,
                                              const std::string& what)>& visit);

}  // namespace pc
