// Whether this machine shows processes a GPU, without opening the driver: that starts threads, and forbids a later fork.
#pragma once

#include <string>

namespace pc::cuda {

// `library`: a driver that somebody named, which answers for itself; empty: nobody did.
bool may_have_gpu(const std::string& library);

}  // namespace pc::cuda
