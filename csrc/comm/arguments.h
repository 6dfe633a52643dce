// Rejects invalid calls before a byte is sent.
#pragma once

#include "engine/request.h"

namespace pc {

// Returns an error if the request is invalid. Also brings a valid request into the form that
// executors expect: a reduce has an output only on the root, and a broadcast has an input only on
// the root. The root of a broadcast has an output even if the caller gave only an input; that
// output is not written.
Status check_request(Request& request, Rank rank, Rank size);

// Returns OK if elements of this dtype can be combined by this operation.
Status check_reduction(const ConstBuffer& data, const Reduction& how);

// `verb` is "send to" or "recv from", for the error text.
Status check_message(const ConstBuffer& data, Rank peer, Rank size, std::string_view verb);

// `out` is sent to `dest`, `in` is received from `source`. If `dest` or `source` is this rank, both
// must be this rank, and the arrays must have the same dtype, layout and size.
Status check_sendrecv(const ConstBuffer& out, Rank dest, const Buffer& in, Rank source, Rank rank, Rank size);

// Returns `group_timeout_s` if `timeout_s` is negative, and an error if `timeout_s` is NaN.
Result<double> check_timeout(double timeout_s, double group_timeout_s);

}  // namespace pc
