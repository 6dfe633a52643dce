"""The common base of PMI-1 and PMI-2: one answer per request, and a fence across all processes."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from abc import ABC, abstractmethod

from pycollective.bootstrap.kvs.channel import Channel
from pycollective.errors import CollectiveError, CollectiveTimeout

FINALIZE_S = 2.0


class Pmi(ABC):
    """A value can be read after all processes have entered the same fence."""

    lasting = False
    fence: str  # this request and `goodbye` are in the syntax of the PMI version
    goodbye: str
    advice: str  # in the error of a timeout: what may have kept a rank from entering the fence

    def __init__(self, fd: int, name: str) -> None:
        self.name = name
        self.channel = Channel(fd, name)
        self.owner = os.getpid()
        self.unanswered = 0  # requests without a received answer, e.g. because a wait timed out
        self.fenced: set[str] = set()  # keys of the fences that this process has entered
        self.texts: dict[str, str] = {}  # the values read so far, by key

    @abstractmethod
    def send(self, request: str, deadline: float) -> None:
        """Send a request, and count it in `unanswered`."""

    @abstractmethod
    def answer(self, deadline: float) -> dict[str, str]:
        """Return the next answer, and count it as read. Raises PeerFailure if it is a refusal."""

    def withdraw(self, key: str) -> None:
        """Do nothing: PMI cannot remove a value, and the KVS ends with the job."""
        del key

    def enter_fence(self, key: str, deadline: float, timeout_s: float) -> None:
        """Enter the fence of this key, and wait for all other processes to enter it.

        If the wait times out, the next call continues to wait without entering the fence again.
        """
        try:
            if key not in self.fenced:
                self.catch_up(deadline)
                self.fenced.add(key)
                self.send(self.fence, deadline)
            self.catch_up(deadline)
        except CollectiveTimeout:
            raise CollectiveTimeout(
                f"not every rank came to init() in {timeout_s:.3g} s, for {self.name} waits for all of them. Look for "
                f"{self.advice}"
            ) from None

    def ask(self, request: str, deadline: float) -> dict[str, str]:
        self.catch_up(deadline)
        self.send(request, deadline)
        return self.answer(deadline)

    def catch_up(self, deadline: float) -> None:
        while self.unanswered:
            self.answer(deadline)

    def finalize(self) -> None:
        # Send the goodbye only at a clean exit. If a process that dies of an exception sent it,
        # hydra would not end the job and Slurm would not detect the failure.
        if os.getpid() != self.owner or getattr(sys, "last_type", None) is not None:
            return
        with contextlib.suppress(CollectiveError):  # an error means that the launcher has died
            self.ask(self.goodbye, time.monotonic() + FINALIZE_S)
