// NCCL's own calls on a separate communicator, directly through its function table: the baseline
// that pycollective's calls are compared with.
#pragma once

#include <memory>

#include "bench/gpu.h"
#include "bench/options.h"
#include "gpu/nccl/communicator.h"
#include "gpu/nccl/types.h"

namespace pc::bench {

// Returns true if NCCL's own call of the operation can be timed.
bool has_raw(const Operation& operation);

// Thread-safety: one thread.
class RawNccl {
 public:
  // Joins the other ranks of `group`, which must outlive the object. The communicator is blocking,
  // as are those of torch and pycollective. Its init and its end have deadlines; a call that blocks
  // inside NCCL has none. If joining fails on one rank, all ranks are notified.
  static Result<std::unique_ptr<RawNccl>> join(Communicator& group, std::shared_ptr<const nccl::Api> api);

  // Makes one call for each element of `arrays`, in one group if there are several.
  Status queue(const Case& what, Rank root, std::span<const Arrays> arrays, cuda::CUstream stream);
  Status close();
  void abort(const Status& why) { (void)communicator_->abort(why); }

 private:
  RawNccl(Communicator& group, std::shared_ptr<const nccl::Api> api) : group_(group), api_(std::move(api)) {}
  Status init(const nccl::UniqueId& id);
  nccl::ReturnCode call(const Case& what, Rank root, const Arrays& arrays, cuda::CUstream stream) const;
  nccl::ReturnCode call_alltoall(const Arrays& arrays, const nccl::Reduced& as, cuda::CUstream stream) const;
  Status queue_messages(const Case& what, const Arrays& arrays, cuda::CUstream stream);
  Status settled(nccl::ReturnCode code);

  Communicator& group_;
  const std::shared_ptr<const nccl::Api> api_;
  nccl::SteadyClock clock_;
  std::unique_ptr<nccl::Communicator> communicator_;
  nccl::CommHandle handle_ = nullptr;
};

}  // namespace pc::bench
