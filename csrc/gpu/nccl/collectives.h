// Translates this project's collectives into NCCL calls on a stream. It allocates and copies
// nothing, and waits only for the NCCL call itself.
//
// | here                        | NCCL                                                            |
// |-----------------------------|-----------------------------------------------------------------|
// | allreduce, broadcast, reduce| the call of that name                                           |
// | barrier                     | ncclAllReduce of one int32 of any value                         |
// | allgather, reduce_scatter   | the call of that name; for uneven parts one ncclBroadcast or    |
// |                             |   ncclReduce per rank, grouped                                  |
// | alltoall, gather, scatter   | the call of that name from 2.28.3 on, for even parts; otherwise |
// |                             |   ncclSend and ncclRecv, grouped                                |
// | lists                       | one call per block, grouped, for allreduce, broadcast, reduce;  |
// |                             |   otherwise refused                                             |
// | scan, exscan                | refused                                                         |
//
// Input and output may alias by the same rules as in NCCL (plan/contracts.h): a part must be at its
// own offset in the whole array. Nothing is issued for an array without elements. All ranks decide
// this in the same way, because all ranks know the array's size; in an uneven alltoall the two
// ranks of each part know its size.
#pragma once

#include "base/status.h"
#include "engine/request.h"
#include "gpu/nccl/communicator.h"

namespace pc::nccl {

// Returns OK if NCCL supports such a request, otherwise kUnsupported with the reason. The result is
// the same on all ranks.
Status can_issue(const Request& request);
// Checks restrictions that depend on the communicator's size and NCCL version.
Status can_issue_to(const Communicator& communicator, const Request& request);

// The caller must have checked the request (comm/arguments.h), and its arrays must be memory of the
// communicator's GPU. `barrier_word` is 4 bytes of that memory which have no other use; it may be
// null if the request is not a barrier.
Status issue(Communicator& communicator, const Request& request, void* barrier_word,
             const WaitContext& context);

Status issue_send(Communicator& communicator, const ConstBuffer& data, Rank peer, StreamHandle stream,
                  const WaitContext& context);
Status issue_recv(Communicator& communicator, const Buffer& data, Rank peer, StreamHandle stream,
                  const WaitContext& context);
// Issues the send and the receive in one group, so that neither waits for the other. If one peer is
// this rank itself, both must be.
Status issue_sendrecv(Communicator& communicator, const ConstBuffer& out, Rank dest, const Buffer& in,
                      Rank source, StreamHandle stream, const WaitContext& context);

}  // namespace pc::nccl
