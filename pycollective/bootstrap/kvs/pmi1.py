"""PMI-1, the line protocol of hydra on PMI_FD: the mpiexec of MPICH and of Intel MPI."""

from __future__ import annotations

import atexit
import os
import time

from pycollective.bootstrap.kvs.pmi import Pmi
from pycollective.errors import PeerFailure

MORE, LAST = "+", "."  # prefix of a piece of a long value: another piece follows, or none


class Pmi1(Pmi):
    """Long values are split into several pieces, each under a key of its own."""

    fence = "cmd=barrier_in"
    goodbye = "cmd=finalize"
    advice = "ranks that ended, hang before init(), or run another program (mpiexec a.py : b.py)"

    def __init__(self, fd: int, name: str) -> None:
        super().__init__(fd, name)
        self.space = ""  # the job's key-value space; empty if not connected yet
        self.longest = 0  # longest value that the server accepts

    def publish(self, key: str, text: str, *, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        self.connect(deadline)
        if key not in self.fenced:
            width = self.longest - 1
            pieces = [text[i : i + width] for i in range(0, len(text), width)]
            for number, piece in enumerate(pieces):
                mark = LAST if number == len(pieces) - 1 else MORE
                self.ask(f"cmd=put kvsname={self.space} key={key}.{number} value={mark}{piece}", deadline)
        self.enter_fence(key, deadline, timeout_s)

    def read(self, key: str, *, timeout_s: float) -> str:
        deadline = time.monotonic() + timeout_s
        self.connect(deadline)
        self.enter_fence(key, deadline, timeout_s)
        if key not in self.texts:
            text, mark, number = "", MORE, 0
            while mark == MORE:
                value = self.ask(f"cmd=get kvsname={self.space} key={key}.{number}", deadline)["value"]
                mark, text, number = value[:1], text + value[1:], number + 1
            self.texts[key] = text
        return self.texts[key]

    def connect(self, deadline: float) -> None:
        if self.space:
            return
        os.set_inheritable(self.channel.fd, False)  # processes that this rank starts are not ranks
        self.ask("cmd=init pmi_version=1 pmi_subversion=1", deadline)
        self.longest = int(self.ask("cmd=get_maxes", deadline)["vallen_max"]) - 1
        self.space = self.ask("cmd=get_my_kvsname", deadline)["kvsname"]
        atexit.register(self.finalize)

    def send(self, request: str, deadline: float) -> None:
        self.unanswered += 1
        self.channel.send(request.encode() + b"\n", deadline)

    def answer(self, deadline: float) -> dict[str, str]:
        line = self.channel.line(deadline).decode(errors="replace")
        self.unanswered -= 1
        fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if fields.get("rc", "0") != "0":
            raise PeerFailure(f"{self.name} refused a request: {fields.get('msg', line)}", cause=line)
        return fields
