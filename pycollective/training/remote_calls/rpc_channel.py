"""The messages of one serving block. Values are encoded, and only the reader decodes them.

One thread of each rank receives all messages. It waits for nothing else, so that no sender is
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

# "call": a call. "answer", "error": the result or exception of a call. "done": the sender makes no
# more calls. "end": the sender sends no more answers either. "failed": the sender's block has
# failed.
Kind: TypeAlias = Literal["call", "answer", "error", "done", "end", "failed"]

LOOK_S = 20.0  # length of one wait; after a longer one the core warns that no rank sends
GIVE_UP_S = 1.0
ENVELOPE_NBYTES = 1 << 16  # room for the fields beside the value


class RpcMessage(NamedTuple):
    """One message. `number` is that of the caller's call, `name` that of the function."""

    kind: Kind
    number: int = 0
    name: str = ""
    value: Bytes | None = None


def serialize(value: object, what: str) -> Bytes:
    """Encodes a value. Raises InvalidArgument, with `what` in the text, if it cannot be sent."""
    try:
        return object_codec.encode(value, most_nbytes=objects.MAX_NBYTES - ENVELOPE_NBYTES)
    except InvalidArgument as error:
        raise InvalidArgument(str(error).replace("obj", what, 1)) from None


def deserialize(value: Bytes | None) -> Any:  # noqa: ANN401
    """Decodes the result of serialize(). Arrays are views of its bytes."""
    assert value is not None
    return object_codec.decode(value)


class RpcChannel:
    """Sends and receives messages between the ranks of a group, with a tag of its own.

    Thread-safety: any thread may call send(); only one thread may call receive().
    """

    def __init__(self, group: Group, tag: int) -> None:
        self._group = group
        self._tag = tag
        # by peer: held while the parts of a message are sent
        self._send_locks = [threading.Lock() for _ in range(group.size)]

    def send(self, peer: int, message: RpcMessage, timeout: float | None = None) -> None:
        """Returns when the message has been sent."""
        clock = Clock(timeout)
        lock = self._send_locks[peer]
        if not lock.acquire(timeout=LONGEST_S if timeout is None else timeout):
            raise CollectiveTimeout(f"another thread's message to rank {peer} is on its way", peer=peer)
        try:
            objects.send_object(self._group, tuple(message), peer, tag=self._tag, timeout=clock.left_s())
        except BaseException:
            # The peer may have received a part of the message. The next message makes it drop that
            # part.
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
                del token  # puts the message back for recv_object(); no other thread takes messages
                # raised if the sender has abandoned the message
                with contextlib.suppress(Aborted, PeerInterrupted):
                    fields = objects.recv_object(self._group, source, tag=self._tag)
                    if fields is not None:
                        return source, RpcMessage(*fields)
