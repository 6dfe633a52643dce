#include "prepared_call.h"

#include <algorithm>
#include <tuple>

#include "running_call.h"

namespace pc {

Status PreparedCall::run(Communicator& communicator) const {
  switch (kind) {
    case Kind::kSend: return communicator.send(request.out, request.root, tag, timeout_s, request.site);
    case Kind::kRecv: return communicator.recv(request.out, request.root, tag, timeout_s, request.site);
    case Kind::kCollective: break;
  }
  return communicator.run(request, timeout_s);
}

Result<std::shared_ptr<AsyncCall>> PreparedCall::begin(Communicator& communicator,
                                                       std::function<void()> on_end) const {
  Communicator::Async how{timeout_s, std::move(on_end)};
  const auto& [data, peer, site] = std::tie(request.out, request.root, request.site);
  switch (kind) {
    case Kind::kSend: return communicator.begin_send(data, peer, tag, site, std::move(how));
    case Kind::kRecv: return communicator.begin_recv(data, peer, tag, site, std::move(how));
    case Kind::kCollective: break;
  }
  return communicator.begin(request, std::move(how));
}

std::size_t PreparedCall::nbytes() const { return std::max(request.in.nbytes(), request.out.nbytes()); }

PyObject* run_prepared(GroupObject& group, const PreparedCall& call) {
  const Status status = run(group, [&](Communicator& c) { return call.run(c); });
  return finish(group, status, call.written, call.result);
}

}  // namespace pc
