// What an error of the driver means to the user, where that is known.
#pragma once

#include <string_view>

#include "base/status.h"
#include "gpu/cuda/driver_abi.h"

namespace pc::cuda {

Code code_for(CUresult error);
std::string_view advice_for(CUresult error);  // empty: no advice

}  // namespace pc::cuda
