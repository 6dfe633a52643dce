#include "bench/allreduce.h"

namespace pc::bench {

Status allreduce(Communicator& group, std::span<int64_t> values, ReduceOp op) {
  Request request;
  request.collective = Collective::kAllreduce;
  request.out = {reinterpret_cast<std::byte*>(values.data()), values.size(), DType::kI64};
  request.in = request.out;
  request.op = op;
  return group.run(request);
}

}  // namespace pc::bench
