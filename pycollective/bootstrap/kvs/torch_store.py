"""torchrun's own store, which the agent keeps at MASTER_ADDR:MASTER_PORT.

This client does not use torch, because importing it takes seconds.
"""

from __future__ import annotations

import contextlib
import enum
import socket
import struct
import time
from collections.abc import Iterator

from pycollective.bootstrap.kvs.channel import Channel
from pycollective.errors import CollectiveError, CollectiveTimeout, PeerFailure

MAGIC = 0x3C85F7CE
# The agent listens before it starts ranks, so it counts as absent if connecting takes longer.
CONNECT_S = 10.0
FORGET_S = 2.0


class Query(enum.IntEnum):
    VALIDATE, SET = 0, 1
    GET = 3
    CHECK, WAIT = 5, 6
    DELETE_KEY = 8


STOP_WAITING, READY = b"\0", b"\0"


class TorchStore:
    """Keys exist as long as the agent, which outlives a restart of the ranks."""

    lasting = True

    def __init__(self, host: str, port: int, space: str) -> None:
        self.name = f"torchrun's agent store at {host}:{port}"
        self.space = space  # distinguishes this job's keys from those of other jobs
        self.host = host
        self.port = port

    def publish(self, key: str, text: str, *, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        with self.connected(deadline) as channel:
            channel.send(query(Query.SET) + words(self.full(key), text), deadline)
            channel.send(
                query(Query.CHECK) + count(1) + words(self.full(key)), deadline
            )  # SET has no answer, so a CHECK is sent with it to confirm it
            if channel.exactly(1, deadline) != READY:
                raise PeerFailure(f"{self.name} did not keep rank 0's value")

    def read(self, key: str, *, timeout_s: float) -> str:
        deadline = time.monotonic() + timeout_s
        with self.connected(deadline) as channel:
            channel.send(query(Query.WAIT) + count(1) + words(self.full(key)), deadline)
            try:
                answer = channel.exactly(1, deadline)
            except CollectiveTimeout:
                raise CollectiveTimeout(
                    f"rank 0 has not published its address in {self.name} within {timeout_s:.3g} s: it ended, hangs "
                    "before init(), or runs another program"
                ) from None
            if answer != STOP_WAITING:
                raise PeerFailure(f"{self.name} speaks another protocol: it answered {answer!r} to a wait")
            channel.send(query(Query.GET) + words(self.full(key)), deadline)
            (length,) = struct.unpack("<Q", channel.exactly(8, deadline))
            return channel.exactly(min(length, 1 << 16), deadline).decode(errors="replace")

    def withdraw(self, key: str) -> None:
        deadline = time.monotonic() + FORGET_S
        with contextlib.suppress(CollectiveError), self.connected(deadline) as channel:
            channel.send(query(Query.DELETE_KEY) + words(self.full(key)), deadline)
            channel.exactly(8, deadline)

    def full(self, key: str) -> str:
        return f"{key}/{self.space}"

    @contextlib.contextmanager
    def connected(self, deadline: float) -> Iterator[Channel]:
        try:
            left = min(CONNECT_S, max(0.001, deadline - time.monotonic()))
            connection = socket.create_connection((self.host, self.port), timeout=left)
        except OSError as error:
            raise PeerFailure(
                f"{self.name} (MASTER_ADDR, MASTER_PORT) does not answer: {error}. It lives in the agent on the first "
                f"host; PYCOLLECTIVE_LAUNCHER=variables does without it",
                cause=str(error),
            ) from None
        with connection:
            connection.setblocking(True)  # The channel itself waits with deadlines.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            channel = Channel(connection.fileno(), self.name)
            channel.send(query(Query.VALIDATE) + struct.pack("<I", MAGIC), deadline)
            yield channel


def query(kind: Query) -> bytes:
    return bytes([kind])


def count(number: int) -> bytes:
    return struct.pack("<Q", number)


def words(*texts: str) -> bytes:
    return b"".join(count(len(text.encode())) + text.encode() for text in texts)
