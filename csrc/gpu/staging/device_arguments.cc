#include "gpu/staging/device_arguments.h"

#include <string>

namespace pc {

Status check_on_gpu(UserCall& call, int device, const Communicator& group) {
  const Device here = {DeviceType::kCuda, static_cast<int16_t>(device)};
  Request& request = call.request;
  const auto misplaced = [&](const ConstBuffer& buffer) {
    return is_there(buffer) && (buffer.device.type != here.type || buffer.device.index != here.index);
  };
  if (misplaced(request.in) || misplaced(request.out))
    return Status(Code::kInvalidArgument, "an array of this call does not lie on GPU " +
                                              std::to_string(device) + ", which this group uses here");
  request.in.device = request.out.device = {};
  PC_TRY(call.check(group.rank(), group.size()));
  if (is_there(request.in)) request.in.device = here;
  if (is_there(request.out)) request.out.device = here;
  return Status::ok();
}

}  // namespace pc
