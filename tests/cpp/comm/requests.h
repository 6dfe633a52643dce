// Calls on arrays with results that every rank knows.
#pragma once

#include "conformance/elements.h"
#include "world.h"

namespace pc::testing {

inline Request request_of(Collective collective, Elements& in, Elements& out, ReduceOp op = ReduceOp::kSum,
                          Rank root = 0) {
  Request request;
  request.collective = collective;
  request.in = in.view();
  request.out = out.buffer();
  request.op = op;
  request.root = root;
  return request;
}

// Makes an allreduce and checks its result.
inline Status right_allreduce(Communicator& group, std::size_t count = 4, double timeout_s = -1) {
  Elements x = contribution(DType::kF32, count, group.rank(), group.size());
  PC_TRY(group.run(request_of(Collective::kAllreduce, x, x), timeout_s));
  const bool right = x.bytes == reduced(DType::kF32, ReduceOp::kSum, count, group.size()).bytes;
  return right ? Status::ok() : wrong("wrong result");
}

}  // namespace pc::testing
