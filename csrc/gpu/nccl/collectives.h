// Translates this project's collectives into calls of NCCL in the order of a stream. It allocates
// and copies nothing, and waits only for the call itself.
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
// The rules on aliasing input and output (plan/contracts.h) are NCCL's: a part must be at its own
// place in the whole array. An array of no elements issues nothing on any rank: all ranks know its
// size or, in an uneven alltoall, both ends do.
#pragma once

#include "base/status.h"
#include "engine/request.h"
#include "gpu/nccl/communicator.h"

namespace pc::nccl {

// Returns OK, or kUnsupported with the reason. The result depends only on what all ranks know.
Status can_issue(const Request& request);
// Checks further restrictions of this communicator.
Status can_issue_to(const Communicator& communicator, const Request& request);

// The request must have been checked (comm/arguments.h), and its arrays must be memory of the
// communicator's GPU. `barrier_word` is 4 bytes of that memory which have no other use; it may be
// null if the request is no barrier.
Status issue(Communicator& communicator, const Request& request, void* barrier_word,
             const WaitContext& context);

Status issue_send(Communicator& communicator, const ConstBuffer& data, Rank peer, StreamHandle stream,
                  const WaitContext& context);
Status issue_recv(Communicator& communicator, const Buffer& data, Rank peer, StreamHandle stream,
                  const WaitContext& context);
// Issues both at once: neither waits for the other. A peer may be this rank itself if both are.
Status issue_sendrecv(Communicator& communicator, const ConstBuffer& out, Rank dest, const Buffer& in,
                      Rank source, StreamHandle stream, const WaitContext& context);

}  // namespace pc::nccl
