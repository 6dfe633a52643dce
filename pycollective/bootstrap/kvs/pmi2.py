"""PMI-2, which Slurm uses on PMI_FD under `srun --mpi=pmi2`."""

from __future__ import annotations

import atexit
import os
import time

from pycollective.bootstrap.kvs.pmi import Pmi
from pycollective.errors import PeerFailure

LENGTH_DIGITS = 6  # every message after the first begins with its length, in six characters


class Pmi2(Pmi):
    """Every message but the first begins with its length."""

    fence = "cmd=kvs-fence;"
    goodbye = "cmd=finalize;"
    advice = "ranks that ended or hang before init(); `srun -K` ends the job when one fails"

    def __init__(self, fd: int, name: str, *, job: str, rank: int) -> None:
        super().__init__(fd, name)
        self.job = job
        self.rank = rank
        self.connected = False

    def publish(self, key: str, text: str, *, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        self.connect(deadline)
        if key not in self.fenced:
            self.ask(f"cmd=kvs-put;key={key};value={text};", deadline)
        self.enter_fence(key, deadline, timeout_s)

    def read(self, key: str, *, timeout_s: float) -> str:
        deadline = time.monotonic() + timeout_s
        self.connect(deadline)
        self.enter_fence(key, deadline, timeout_s)
        if key not in self.texts:
            found = self.ask(f"cmd=kvs-get;jobid={self.job};srcid=-1;key={key};", deadline)
            if "value" not in found:
                raise PeerFailure(f"{self.name} has no value for {key}: rank 0 runs another program")
            self.texts[key] = found["value"]
        return self.texts[key]

    def connect(self, deadline: float) -> None:
        if self.connected:
            return
        os.set_inheritable(self.channel.fd, False)  # processes that this rank starts are not ranks
        self.channel.send(b"cmd=init pmi_version=2 pmi_subversion=0\n", deadline)
        self.channel.line(deadline)
        self.ask(f"cmd=fullinit;pmijobid={self.job};pmirank={self.rank};threaded=FALSE;", deadline)
        self.connected = True
        atexit.register(self.finalize)

    def send(self, request: str, deadline: float) -> None:
        self.unanswered += 1
        self.channel.send(f"{len(request):{LENGTH_DIGITS}d}{request}".encode(), deadline)

    def answer(self, deadline: float) -> dict[str, str]:
        text = self.message(deadline).decode(errors="replace")
        self.unanswered -= 1
        fields = dict(word.split("=", 1) for word in text.split(";") if "=" in word)
        if fields.get("rc", "0") != "0":
            raise PeerFailure(f"{self.name} refused a request: {fields.get('errmsg', text)}", cause=text)
        return fields

    def message(self, deadline: float) -> bytes:
        while len(self.channel.arrived) < LENGTH_DIGITS:
            self.channel.more(deadline)
        head = self.channel.arrived[:LENGTH_DIGITS]
        if not head.strip().isdigit():
            raise PeerFailure(f"{self.name} sent {head!r} where the length of a message belongs")
        return self.channel.exactly(LENGTH_DIGITS + int(head), deadline)[LENGTH_DIGITS:]
