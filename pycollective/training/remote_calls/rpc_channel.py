"""The messages of one serving block. Their contents are bytes that only the reader decodes.

One thread of each rank receives all of them, and does nothing that waits, so that no sender is
delayed.
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

# A call; its result, or its exception; no more calls from the sender; no more answers, either; the
# sender's block has failed.
Kind: TypeAlias = Literal["call", "answer", "error", "done", "end", "failed"]

LOOK_S = 20.0  # the core warns after a longer wait that no rank sends
GIVE_UP_S = 1.0
ENVELOPE_NBYTES = 1 << 16  # for the fields around the value


class RpcMessage(NamedTuple):
    """One message. `number` counts the calls of a caller; `name` is the function's."""

    kind: Kind
    number: int = 0
    name: str = ""
    value: Bytes | None = None


def serialize(value: object, what: str) -> Bytes:
    """Returns the bytes of `value`; raises InvalidArgument, with `what`, if it cannot be sent."""
    try:
        return object_codec.encode(value, most_nbytes=objects.MAX_NBYTES - ENVELOPE_NBYTES)
    except InvalidArgument as error:
        raise InvalidArgument(str(error).replace("obj", what, 1)) from None


def deserialize(value: Bytes | None) -> Any:  # noqa: ANN401
    """Reverses serialize(). Arrays are views of the bytes."""
    assert value is not None
    return object_codec.decode(value)


class RpcChannel:
    """Messages between the ranks of a group, with their own tag.

    Thread-safety: any thread may call send(); one thread calls receive().
    """

    def __init__(self, group: Group, tag: int) -> None:
        self._group = group
        self._tag = tag
        self._send_locks = [threading.Lock() for _ in range(group.size)]  # a message is sent in several parts

    def send(self, peer: int, message: RpcMessage, timeout: float | None = None) -> None:
        """Returns when the message has been sent."""
        clock = Clock(timeout)
        lock = self._send_locks[peer]
        if not lock.acquire(timeout=LONGEST_S if timeout is None else timeout):
            raise CollectiveTimeout(f"another thread's message to rank {peer} is on its way", peer=peer)
        try:
            objects.send_object(self._group, tuple(message), peer, tag=self._tag, timeout=clock.left_s())
        except BaseException:
            # Part of it may have arrived: the next message informs the receiver that the rest will
            # not.
            with contextlib.suppress(CollectiveError):
                objects.send_object(self._group, None, peer, tag=self._tag, timeout=GIVE_UP_S)
            raise
        finally:
            lock.release()

    def receive(self) -> tuple[int, RpcMessage]:
        """Returns the next message and its sender. Waits as long as the world lasts."""
        while True:
            with contextlib.suppress(CollectiveTimeout):
                source, _, _, token = self._group._find(ANY_SOURCE, self._tag, LOOK_S)
                del token  # puts the message back; no other thread takes it
                with contextlib.suppress(Aborted, PeerInterrupted):  # the sender gave up
                    fields = objects.recv_object(self._group, source, tag=self._tag)
                    if fields is not None:
                        return source, RpcMessage(*fields)
