// Refuses calls that cannot be right, before a byte is sent.
#pragma once

#include "engine/request.h"

namespace pc {

// Also brings the request into the form that executors expect: no output off the root of a reduce, no input off the
// root of a broadcast, an output on the root of a broadcast even if only its input was given (it is not written).
Status check_request(Request& request, Rank rank, Rank size);

// Whether elements of that kind can be combined so.
Status check_reduction(const ConstBuffer& data, const Reduction& how);

// `verb` is "send to" or "recv from".
Status check_message(const ConstBuffer& data, Rank peer, Rank size, std::string_view verb);

// `out` goes to `dest`, `in` is filled by `source`. Both may be this rank itself; then they must be of one kind.
Status check_sendrecv(const ConstBuffer& out, Rank dest, const Buffer& in, Rank source, Rank rank, Rank size);

// The group's own timeout for a negative one; NaN is refused.
Result<double> check_timeout(double timeout_s, double group_timeout_s);

}  // namespace pc
