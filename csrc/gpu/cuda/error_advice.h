// Maps errors of the driver to status codes, and to advice for the user where some is known.
#pragma once

#include <string_view>

#include "base/status.h"
#include "gpu/cuda/driver_abi.h"

namespace pc::cuda {

Code code_for(CUresult error);
std::string_view advice_for(CUresult error);  // empty: no advice

}  // namespace pc::cuda
