// The calls on arrays and the messages of a group, one row each. Each row generates the methods of
// Group, the functions of the module, their signatures and docstrings, and the arguments for
// pycollective.calls.packing.
#pragma once

#include <array>

#include "bindings/calls/call_row.h"
#include "bindings/calls/calls.h"
#include "bindings/calls/message_calls.h"
#include "bindings/calls/part_calls.h"
#include "bindings/docs/group_docs.h"
#include "bindings/docs/message_docs.h"
#include "bindings/docs/part_docs.h"
#include "bindings/docs/planned_docs.h"

namespace pc {

inline constexpr auto kCallTable = std::to_array<CallRow>({
    {.signature = {"allreduce", 1, 2, 5, {kX, kOp, kOut, kTimeout, kReproducible}},
     .async_name = "allreduce_async",
     .planned_name = "plan_allreduce",
     .background = Background::kLists,
     .prepare = prepare_elementwise<Collective::kAllreduce>,
     .doc = docs::kAllreduce,
     .planned_doc = docs::kPlanAllreduce,
     .async_example = R"(    >>> work = pc.allreduce_async(np.array([1.0, 2.0]), "avg")
    >>> work.wait()
    array([1., 2.]))"},
    {.signature = {"broadcast", 1, 2, 3, {kX, kRoot, kTimeout}},
     .async_name = "broadcast_async",
     .background = Background::kLists,
     .prepare = prepare_broadcast,
     .doc = docs::kBroadcast,
     .async_example = R"(    >>> pc.broadcast_async(np.arange(3)).wait()
    array([0, 1, 2]))"},
    {.signature = {"reduce", 1, 2, 5, {kX, kOp, kRoot, kTimeout, kReproducible}},
     .async_name = "reduce_async",
     .background = Background::kLists,
     .prepare = prepare_reduce,
     .doc = docs::kReduce,
     .async_example = R"(    >>> pc.reduce_async(np.array([1, 2]), "max").wait()
    array([1, 2]))"},
    {.signature = {"allgather", 1, 1, 5, {kX, kOut, kCounts, kAxis, kTimeout}},
     .async_name = "allgather_async",
     .background = Background::kParts,
     .prepare = prepare_parts<Collective::kAllgather>,
     .doc = docs::kAllgather,
     .async_example = R"(    >>> pc.allgather_async(np.ones(2)).wait().shape == (2 * pc.size(),)
    True)"},
    {.signature = {"reduce_scatter", 1, 2, 7, {kX, kOp, kOut, kCounts, kAxis, kTimeout, kReproducible}},
     .async_name = "reduce_scatter_async",
     .background = Background::kParts,
     .prepare = prepare_parts<Collective::kReduceScatter>,
     .doc = docs::kReduceScatter,
     .async_example = R"(    >>> pc.reduce_scatter_async(np.ones(2 * pc.size())).wait().shape
    (2,))"},
    {.signature = {"alltoall", 1, 1, 6, {kX, kOut, kCounts, kRecvCounts, kAxis, kTimeout}},
     .async_name = "alltoall_async",
     .background = Background::kParts,
     .prepare = prepare_parts<Collective::kAlltoall>,
     .doc = docs::kAlltoall,
     .async_example = R"(    >>> pc.alltoall_async(np.ones(pc.size())).wait().shape == (pc.size(),)
    True)"},
    {.signature = {"gather", 1, 2, 6, {kX, kRoot, kOut, kCounts, kAxis, kTimeout}},
     .async_name = "gather_async",
     .background = Background::kParts,
     .prepare = prepare_parts<Collective::kGather>,
     .doc = docs::kGather,
     .async_example = R"(    >>> joined = pc.gather_async(np.ones(2)).wait())"},
    {.signature = {"scatter", 1, 2, 6, {kX, kRoot, kOut, kCounts, kAxis, kTimeout}},
     .async_name = "scatter_async",
     .background = Background::kParts,
     .prepare = prepare_parts<Collective::kScatter>,
     .doc = docs::kScatter,
     .async_note = " out= must be given.",
     .async_example = R"(    >>> pc.scatter_async(np.ones(2 * pc.size()), out=np.zeros(2)).wait()
    array([1., 1.]))"},
    {.signature = {"scan", 1, 2, 5, {kX, kOp, kOut, kTimeout, kReproducible}},
     .async_name = "scan_async",
     .background = Background::kLists,
     .prepare = prepare_elementwise<Collective::kScan>,
     .doc = docs::kScan,
     .async_example = R"(    >>> pc.scan_async(np.array([1])).wait().item() == pc.rank() + 1
    True)"},
    {.signature = {"exscan", 1, 2, 5, {kX, kOp, kOut, kTimeout, kReproducible}},
     .async_name = "exscan_async",
     .background = Background::kLists,
     .prepare = prepare_elementwise<Collective::kExscan>,
     .doc = docs::kExscan,
     .async_example = R"(    >>> ended = pc.exscan_async(np.array([1])).wait())"},
    {.signature = {"send", 2, 2, 4, {kX, kPeer, kTag, kTimeout}},
     .async_name = "send_async",
     .background = Background::kPlain,
     .is_message = true,
     .prepare = prepare_send,
     .doc = docs::kSend,
     .async_example = R"(    >>> if pc.size() > 1 and pc.rank() == 0:
    ...     _ = pc.send_async(np.arange(4), 1, tag=7).wait())"},
    {.signature = {"recv", 2, 2, 5, {kX, kPeer, kTag, kTimeout, kWithSource}},
     .async_name = "recv_async",
     .background = Background::kPlain,
     .blocking_only = 1,
     .is_message = true,
     .prepare = prepare_recv,
     .doc = docs::kRecv,
     .async_example = R"(    >>> if pc.size() > 1 and pc.rank() == 1:
    ...     _ = pc.recv_async(np.arange(4), 0, tag=7).wait())"},
    {.signature = {"sendrecv", 2, 3, 6, {kX, kDest, kSource, kOut, kTag, kTimeout}},
     .is_message = true,
     .prepare = prepare_sendrecv,
     .doc = docs::kSendrecv},
    {.signature = {"barrier", 0, 0, 1, {kTimeout}},
     .async_name = "barrier_async",
     .background = Background::kPlain,
     .prepare = prepare_barrier,
     .doc = docs::kBarrier,
     .async_example = R"(    >>> pc.barrier_async().wait())"},
});

}  // namespace pc
