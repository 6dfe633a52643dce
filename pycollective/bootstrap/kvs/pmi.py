"""What PMI-1 and PMI-2 have in common: one answer for every request, and a fence that all processes must come to."""

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
    """Values can be read when all processes have come to the same fence after them."""

    lasting = False
    fence: str  # the requests as this version writes them
    goodbye: str
    advice: str  # what may have kept a rank from the fence

    def __init__(self, fd: int, name: str) -> None:
        self.name = name
        self.channel = Channel(fd, name)
        self.owner = os.getpid()
        self.unanswered = 0  # requests that were given up while they waited
        self.fenced: set[str] = set()  # keys whose fence this process has entered
        self.texts: dict[str, str] = {}  # what was read

    @abstractmethod
    def send(self, request: str, deadline: float) -> None:
        """Sends it, and counts it in `unanswered`."""

    @abstractmethod
    def answer(self, deadline: float) -> dict[str, str]:
        """The next answer, which is no longer counted. Raises PeerFailure if it refuses."""

    def withdraw(self, key: str) -> None:
        """Neither version can take a value back: the KVS goes with the job."""
        del key

    def enter_fence(self, key: str, deadline: float, timeout_s: float) -> None:
        """The fence of this key; one that was given up is waited for again, not entered twice."""
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
        # Only at a clean end: then hydra ends the job, and Slurm knows, when a process dies of an exception.
        if os.getpid() != self.owner or getattr(sys, "last_type", None) is not None:
            return
        with contextlib.suppress(CollectiveError):  # the launcher is gone: nobody is left to tell
            self.ask(self.goodbye, time.monotonic() + FINALIZE_S)
