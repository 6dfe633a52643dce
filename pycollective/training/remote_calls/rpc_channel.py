"""The messages of one serving block. What they carry are bytes, which their reader alone opens.

One thread of each rank receives all of them, and does nothing that waits: so whoever sends is never kept waiting.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Literal, NamedTuple, TypeAlias

from pycollective._core import ANY_SOURCE, Group
from pycollective.base.clock import Clock
from pycollective.errors import Aborted, CollectiveError, CollectiveTimeout, InvalidArgument, PeerInterrupted
from pycollective.objects import object_codec, objects
from pycollective.objects.object_codec import Bytes
from pycollective.runtime.lifetime import LONGEST_S

__all__ = ["RpcMessage", "RpcChannel", "deserialize", "serialize"]

# A call; what it returned, or raised; no more calls from me; no more answers, either; my block has failed.
Kind: TypeAlias = Literal["call", "answer", "error", "done", "end", "failed"]

LOOK_S = 20.0  # in the core, where a longer wait would warn that nobody sends
GIVE_UP_S = 1.0
ENVELOPE_NBYTES = 1 << 16  # for what stands around the value


class RpcMessage(NamedTuple):
    """One message. `number` is the call's, among those of its caller; `name` the function's."""

    kind: Kind
    number: int = 0
    name: str = ""
    value: Bytes | None = None


def serialize(value: object, what: str) -> Bytes:
    """The bytes of `value`, which the words call `what`. Raises InvalidArgument if it cannot be sent."""
    try:
        return object_codec.encode(value, most_nbytes=objects.MAX_NBYTES - ENVELOPE_NBYTES)
    except InvalidArgument as error:
        raise InvalidArgument(str(error).replace("obj", what, 1)) from None


def deserialize(value: Bytes | None) -> Any:  # noqa: ANN401
    """Undoes serialize(). Arrays are views of the bytes."""
    assert value is not None
    return object_codec.decode(value)


class RpcChannel:
    """Messages between the ranks of a group, under a tag of their own.

    Thread-safety: any thread sends; one receives.
    """

    def __init__(self, group: Group, tag: int) -> None:
        self._group = group
        self._tag = tag
        self._send_locks = [threading.Lock() for _ in range(group.size)]  # a message is sent in several parts

    def send(self, peer: int, message: RpcMessage, timeout: float | None = None) -> None:
        """Returns when it has gone out."""
        clock = Clock(timeout)
        lock = self._send_locks[peer]
        if not lock.acquire(timeout=LONGEST_S if timeout is None else timeout):
            raise CollectiveTimeout(f"another thread's message to rank {peer} is on its way", peer=peer)
        try:
            objects.send_object(self._group, tuple(message), peer, tag=self._tag, timeout=clock.left_s())
        except BaseException:
            # Part of it may have come: the receiver learns from the next message that no more of this one will.
            with contextlib.suppress(CollectiveError):
                objects.send_object(self._group, None, peer, tag=self._tag, timeout=GIVE_UP_S)
            raise
        finally:
            lock.release()

    def receive(self) -> tuple[int, RpcMessage]:
        """The next message, and the rank that it comes from. Waits as long as the world lasts."""
        while True:
            with contextlib.suppress(CollectiveTimeout):
                source, _, _, token = self._group._find(ANY_SOURCE, self._tag, LOOK_S)
                del token  # puts the message back, for nobody else takes it
                with contextlib.suppress(Aborted, PeerInterrupted):  # its sender gave up
                    fields = objects.recv_object(self._group, source, tag=self._tag)
                    if fields is not None:
                        return source, RpcMessage(*fields)
