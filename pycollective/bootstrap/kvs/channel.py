"""Requests and answers over one descriptor, each with a deadline."""

from __future__ import annotations

import os
import select
import time

from pycollective.errors import CollectiveTimeout, PeerFailure

READ_BYTES = 4096


class Channel:
    """Sends and receives over one descriptor.

    Every wait ends at its deadline or at Ctrl-C. Data received by then is kept for the next call.
    """

    def __init__(self, fd: int, server: str) -> None:
        self.fd = fd
        self.server = server  # for messages: "PMI-1 of hydra"
        self.arrived = b""

    def send(self, data: bytes, deadline: float) -> None:
        left = memoryview(data)
        while left:
            self.wait(select.POLLOUT, deadline)
            try:
                left = left[os.write(self.fd, left) :]
            except OSError as error:
                raise self.gone(error.strerror or str(error)) from None

    def line(self, deadline: float) -> bytes:
        """Return the next line, without its newline."""
        while b"\n" not in self.arrived:
            self.more(deadline)
        line, _, self.arrived = self.arrived.partition(b"\n")
        return line

    def exactly(self, count: int, deadline: float) -> bytes:
        while len(self.arrived) < count:
            self.more(deadline)
        found, self.arrived = self.arrived[:count], self.arrived[count:]
        return found

    def more(self, deadline: float) -> None:
        self.wait(select.POLLIN, deadline)
        try:
            data = os.read(self.fd, READ_BYTES)
        except OSError as error:
            raise self.gone(error.strerror or str(error)) from None
        if not data:
            raise self.gone("it closed the connection")
        self.arrived += data

    def wait(self, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(self.fd, event)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise CollectiveTimeout(f"{self.server} did not answer in time")

    def gone(self, why: str) -> PeerFailure:
        return PeerFailure(
            f"the connection to {self.server} is broken: {why}. The launcher is ending, or another library of this "
            f"process has used up the connection",
            cause=why,
        )
