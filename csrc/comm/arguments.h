// Rejects invalid calls before a byte is sent.
#pragma once

#include "engine/request.h"

namespace pc {

// Also brings the request into the form that executors expect: no output on the non-root ranks of a
// reduce, no input on the non-root ranks of a broadcast, an output on the root of a broadcast even
// if only its input was given (it is not written).
Status check_request(Request& request, Rank rank, Rank size);

// Returns OK if such elements can be combined by this operation.
Status check_reduction(const ConstBuffer& data, const Reduction& how);

// `verb` is "send to" or "recv from".
Status check_message(const ConstBuffer& data, Rank peer, Rank size, std::string_view verb);

// `out` is sent to `dest`, `in` is received from `source`. If one of them is this rank, both must
// be, and the arrays must have the same dtype, layout and size.
Status check_sendrecv(const ConstBuffer& out, Rank dest, const Buffer& in, Rank source, Rank rank, Rank size);

// Returns the group's own timeout for a negative one; rejects NaN.
Result<double> check_timeout(double timeout_s, double group_timeout_s);

}  // namespace pc
