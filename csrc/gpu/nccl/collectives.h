// Our collectives as calls of NCCL, in the order of a stream. Pure translation: nothing is allocated, copied or waited for
// but the call itself.
//
// | ours                        | NCCL                                                                                  |
// |-----------------------------|---------------------------------------------------------------------------------------|
// | allreduce, broadcast, reduce| the call of that name                                                                 |
// | barrier                     | ncclAllReduce of one int32, whatever it holds                                         |
// | allgather, reduce_scatter   | the call of that name; uneven parts: one ncclBroadcast or ncclReduce per rank, grouped |
// | alltoall, gather, scatter   | the call of that name from 2.28.3 on, for even parts; else ncclSend and ncclRecv, grouped |
// | scan, exscan, lists         | refused                                                                               |
//
// Where input and output may be the same memory (plan/contracts.h) NCCL's rules are ours: the part is its own place in the whole.
// An array of no elements issues nothing, on any rank: all know its size, or, in an uneven alltoall, both ends do.
#pragma once

#include "base/status.h"
#include "engine/request.h"
#include "gpu/nccl/communicator.h"

namespace pc::nccl {

// OK, or kUnsupported and why not. A pure function of what all ranks know.
Status can_issue(const Request& request);
// What this communicator cannot, besides.
Status can_issue_to(const Communicator& communicator, const Request& request);

// The request has been checked (comm/arguments.h) and its arrays are memory of the communicator's GPU. `barrier_word`: 4 bytes
// of it, of which nobody else makes use, for barriers; null otherwise.
Status issue(Communicator& communicator, const Request& request, void* barrier_word,
             const WaitContext& context);

Status issue_send(Communicator& communicator, const ConstBuffer& data, Rank peer, StreamHandle stream,
                  const WaitContext& context);
Status issue_recv(Communicator& communicator, const Buffer& data, Rank peer, StreamHandle stream,
                  const WaitContext& context);
// Both at once: neither waits for the other. A peer may be this rank itself, if both are.
Status issue_sendrecv(Communicator& communicator, const ConstBuffer& out, Rank dest, const Buffer& in,
                      Rank source, StreamHandle stream, const WaitContext& context);

}  // namespace pc::nccl
