"""Calls on objects, built from array calls. bindings/docs/object_docs.h documents them for users.

Every rank makes the same array calls, whatever the objects are. A rank that cannot encode its own
object sends a header with the reason. Headers are sent first and hold small objects
(object_message); larger bodies follow.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pycollective._core import Group
from pycollective.base.advice import advised
from pycollective.errors import InvalidArgument
from pycollective.objects.object_call import MAX_NBYTES, Arrived, Call
from pycollective.objects.object_codec import Bytes
from pycollective.objects.object_message import HEADER_NBYTES, Header, ObjectMessage, Piece, refused
from pycollective.objects.object_transfer import move_from

__all__ = [
    "MAX_NBYTES",
    "allgather_object",
    "broadcast_object",
    "gather_object",
    "recv_object",
    "scatter_object",
    "send_object",
]

BODY_TAG = 0xFFFF_0B1E  # tag of the messages with large bodies in gather_object and scatter_object


@advised
def broadcast_object(
    group: Group,
    obj: object,
    root: int = 0,
    *,
    allow_pickle: bool = False,
    max_nbytes: int | None = None,
    timeout: float | None = None,
) -> Any:  # noqa: ANN401
    """Returns the root's object on every rank."""
    call = Call("broadcast_object", group, allow_pickle, max_nbytes, timeout)
    root = call.rank_named("root", root)

    def move(piece: Bytes | Piece) -> object:
        return group.broadcast(piece, root, timeout=call.clock.left_s())

    if group.rank != root:
        return call.receive(root, move).open()
    call.send(call.pack(obj), move)
    return obj


@advised
def send_object(
    group: Group,
    obj: object,
    peer: int,
    *,
    tag: int = 0,
    allow_pickle: bool = False,
    max_nbytes: int | None = None,
    timeout: float | None = None,
) -> None:
    """Sends an object. If the object cannot be encoded, nothing is sent, unlike in a collective."""
    call = Call("send_object", group, allow_pickle, max_nbytes, timeout)
    peer = call.rank_named("peer", peer)
    message = call.pack(obj)
    if message.error is not None:
        raise message.error
    call.send(message, lambda piece: group.send(piece, peer, tag=tag, timeout=call.clock.left_s()))


@advised
def recv_object(
    group: Group,
    peer: int,
    *,
    tag: int = 0,
    allow_pickle: bool = False,
    max_nbytes: int | None = None,
    timeout: float | None = None,
) -> Any:  # noqa: ANN401
    """Returns the object that `peer` sends with send_object()."""
    call = Call("recv_object", group, allow_pickle, max_nbytes, timeout)
    peer = call.rank_named("peer", peer)
    return call.receive(peer, move_from(call, peer, tag)).open()


@advised
def allgather_object(
    group: Group,
    obj: object,
    *,
    allow_pickle: bool = False,
    max_nbytes: int | None = None,
    timeout: float | None = None,
) -> list[Any]:
    """Returns the objects of all ranks, by rank, on every rank."""
    call = Call("allgather_object", group, allow_pickle, max_nbytes, timeout)
    message = call.pack(obj)
    arrived = _bodies_of_all(call, message, _headers_of_all(call, message))
    return [obj if rank == group.rank else arrived[rank].open() for rank in range(group.size)]


@advised
def gather_object(
    group: Group,
    obj: object,
    root: int = 0,
    *,
    allow_pickle: bool = False,
    max_nbytes: int | None = None,
    timeout: float | None = None,
) -> list[Any] | None:
    """Returns the objects of all ranks, by rank, on the root.

    Every rank receives all headers, so every rank raises if one rank cannot encode its object.
    """
    call = Call("gather_object", group, allow_pickle, max_nbytes, timeout)
    root = call.rank_named("root", root)
    message = call.pack(obj)
    headers = _headers_of_all(call, message)
    if group.rank != root:
        for piece in message.pieces():
            group.send(piece, root, tag=BODY_TAG, timeout=call.clock.left_s())
        return None
    arrived = {rank: _body_from(call, rank, headers[rank]) for rank in range(group.size) if rank != root}
    return [obj if rank == root else arrived[rank].open() for rank in range(group.size)]


@advised
def scatter_object(
    group: Group,
    objs: list[Any] | tuple[Any, ...] | None,
    root: int = 0,
    *,
    allow_pickle: bool = False,
    max_nbytes: int | None = None,
    timeout: float | None = None,
) -> Any:  # noqa: ANN401
    """Returns this rank's object from the root's list."""
    call = Call("scatter_object", group, allow_pickle, max_nbytes, timeout)
    root = call.rank_named("root", root)
    mine = np.empty(HEADER_NBYTES, np.uint8)
    if group.rank != root:
        group.scatter(None, root, out=mine, timeout=call.clock.left_s())
        return _body_from(call, root, call.header(root, mine)).open()
    messages = _messages_for_all(call, objs)
    all_headers = np.concatenate([message.header() for message in messages])
    group.scatter(all_headers, root, out=mine, timeout=call.clock.left_s())
    if messages[0].error is not None:
        raise messages[0].error
    for rank, message in enumerate(messages):
        for piece in message.pieces() if rank != root else ():
            group.send(piece, rank, tag=BODY_TAG, timeout=call.clock.left_s())
    assert objs is not None
    return objs[root]


def _messages_for_all(call: Call, objs: list[Any] | tuple[Any, ...] | None) -> list[ObjectMessage]:
    """Returns a message for each rank: all have the reason if one object cannot be sent."""
    size = call.group.size
    if not isinstance(objs, (list, tuple)) or len(objs) != size:
        found = f"{len(objs)} objects" if isinstance(objs, (list, tuple)) else f"a {type(objs).__name__}"
        reason = f"the root needs a list of {size} objects, one a rank, not {found}"
        return [refused(InvalidArgument(f"{call.name}: {reason}"), reason)] * size
    messages = []
    for rank, obj in enumerate(objs):
        messages.append(call.pack(obj, f" for rank {rank}"))
        if messages[-1].error is not None:
            return [messages[-1]] * size
    return messages


def _headers_of_all(call: Call, message: ObjectMessage) -> list[Header]:
    """Returns the decoded headers of all ranks.

    Raises on every rank if one rank could not encode its object.
    """
    all_headers = call.group.allgather(message.header()[np.newaxis], timeout=call.clock.left_s())
    if message.error is not None:
        raise message.error
    return [call.header(rank, header) for rank, header in enumerate(all_headers)]


def _bodies_of_all(call: Call, message: ObjectMessage, headers: list[Header]) -> dict[int, Arrived]:
    """Returns the bodies of all other ranks, by one broadcast per body.

    An allgather would need memory for all bodies on every rank. Here each rank drops the bodies for
    which it lacks memory.
    """
    arrived: dict[int, Arrived] = {}
    for rank, header in enumerate(headers):

        def move(piece: Bytes | Piece, root: int = rank) -> object:
            return call.group.broadcast(piece, root, timeout=call.clock.left_s())

        if rank != call.group.rank:
            arrived[rank] = call.body(rank, header, move)
        else:
            for piece in message.pieces():
                move(piece)
    return arrived


def _body_from(call: Call, rank: int, header: Header) -> Arrived:
    return call.body(rank, header, move_from(call, rank, BODY_TAG))
