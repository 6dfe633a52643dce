"""PMIx, the KVS of Open MPI's mpirun."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Mapping

from pycollective.bootstrap.kvs.pmix_library import ERR_NOT_FOUND, ERR_TIMEOUT, SUCCESS, Calls, Proc, load
from pycollective.errors import CollectiveTimeout, PeerFailure

SLICE_S = 1  # longest single wait, so that Ctrl-C takes effect in between; PMIx counts whole seconds
PAUSE_S = 0.02  # pause after PMIx has answered at once that there is no value yet


class Pmix:
    """PMIx has no fence: a rank requests rank 0's value, and the PMIx servers wait for it."""

    lasting = False

    def __init__(self, name: str, env: Mapping[str, str]) -> None:
        self.name = name
        self.env = env
        self.me = Proc()
        self.owner = os.getpid()
        self.calls: Calls | None = None  # None before the first connection

    def publish(self, key: str, text: str, *, timeout_s: float) -> None:
        calls = self.connect()
        if (code := calls.put(key, text)) != SUCCESS:
            raise PeerFailure(
                f"{self.name} did not take where rank 0's store is: {calls.why(code)}", cause=calls.why(code)
            )

    def read(self, key: str, *, timeout_s: float) -> str:
        deadline = time.monotonic() + timeout_s
        calls = self.connect()
        root = Proc(self.me.namespace, 0)
        while True:
            code, text = calls.get(root, key, SLICE_S)
            if code == SUCCESS:
                return text
            if code not in (ERR_TIMEOUT, ERR_NOT_FOUND):
                raise PeerFailure(
                    f"{self.name} cannot be asked for rank 0's store: {calls.why(code)}",
                    cause=calls.why(code),
                )
            if time.monotonic() > deadline:
                raise CollectiveTimeout(
                    f"rank 0 has not published its address in {self.name} within {timeout_s:.3g} s: it ended, hangs "
                    "before init(), or runs another program"
                )
            if code == ERR_NOT_FOUND:
                time.sleep(PAUSE_S)

    def withdraw(self, key: str) -> None:
        pass

    def connect(self) -> Calls:
        if self.calls is None:
            calls = Calls(load(self.env))
            if (code := calls.init(self.me)) != SUCCESS:
                raise PeerFailure(
                    f"the PMIx server of {self.name} cannot be reached: {calls.why(code)}. This process must be "
                    f"started by mpirun itself, on the same host, by the same user and not in a container of its own",
                    cause=calls.why(code),
                )
            self.calls = calls
            atexit.register(self.finalize)
        return self.calls

    def finalize(self) -> None:
        # Finalize also after an exception. The exit code informs mpirun of the failure; without
        # finalize() mpirun would also print a page of text.
        if self.calls is not None and os.getpid() == self.owner:
            self.calls.finalize()
