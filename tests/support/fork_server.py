"""A fork server: a process that has imported what is slow to import, and forks ranks.

There are up to three, by how much they have imported, each forked from the one before.
forked_ranks.py starts them and sends requests. A server never imports pycollective and starts no
thread, so a rank finds nothing in it that a fresh interpreter would not have loaded by itself. A
forked rank cannot show two things: all ranks have the hash seed and the memory layout of the
server, and libraries read their variables when the server started.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import os
import signal
import socket
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

# By level: a server of one level is forked from that of the level before. The more a process has
# imported, the longer it takes to fork it.
IMPORTED = (
    ("ml_dtypes", "hypothesis.extra.numpy", "pytest", "psutil"),
    ("torch",),
    (
        "torch._dynamo",  # which the first step of any optimizer imports
        "jax.numpy",
        "sklearn.datasets",
    ),
)
LONGEST_REQUEST, MOST_DESCRIPTORS = 1 << 20, 64
PR_SET_PDEATHSIG = 1


def serve(socket_fd: int) -> str:
    """Returns in each rank, with the program that the rank executes."""
    given, level = dict(os.environ), 0
    requests = begin(socket_fd, level)
    while True:
        data, descriptors, _, _ = socket.recv_fds(requests, LONGEST_REQUEST, MOST_DESCRIPTORS)
        if not data:
            sys.exit()
        if (pid := fork_for_parent()) != 0:
            for fd in descriptors:
                os.close(fd)
            requests.send(str(pid).encode())
            continue
        requests.close()
        if (request := json.loads(data)) is None:  # a server of the next level is wanted
            level += 1
            requests = begin(*descriptors, level)
        else:
            set_by_imports = {name: value for name, value in os.environ.items() if name not in given}
            return become_rank(request, descriptors, set_by_imports)


def begin(socket_fd: int, level: int) -> socket.socket:
    """Imports what a server of this level has and the level before lacks.

    Returns the request socket.
    """
    for name in IMPORTED[level]:
        with contextlib.suppress(ImportError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module(name)
    threads = os.listdir("/proc/self/task")
    if len(threads) > 1 or "pycollective" in sys.modules:
        raise RuntimeError(
            f"an import of the fork server has started a thread ({threads}) or loaded pycollective"
        )
    gc.collect()
    gc.freeze()  # so that the present objects stay in pages that all ranks share
    requests = socket.socket(fileno=socket_fd)
    requests.send(b"ready")
    return requests


def fork_for_parent() -> int:
    """Forks a process in a session of its own. Its parent is the server's parent, a subreaper."""
    read_end, write_end = os.pipe()
    between = os.fork()
    if between == 0:
        if os.fork() != 0:
            os._exit(0)
        os.setsid()
        os.write(write_end, str(os.getpid()).encode())
        os.close(write_end)
        os.close(read_end)
        return 0
    os.close(write_end)
    os.waitpid(between, 0)
    with open(read_end) as pid:
        return int(pid.read())


def become_rank(
    request: Mapping[str, Any], descriptors: Sequence[int], set_by_imports: Mapping[str, str]
) -> str:
    """Makes this process a fresh interpreter with the request's command, environment and files."""
    may_begin, *given = descriptors
    if not os.read(may_begin, 1):  # start() has not received this rank's number
        os._exit(1)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != request["parent"]:  # it died before the line above
        os._exit(1)
    give_numbers(given, request["descriptors"])
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update({**set_by_imports, **request["env"]})
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()  # `random` takes a new seed after a fork by itself
    if (torch := sys.modules.get("torch")) is not None:
        torch.default_generator.seed()
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    sys.argv[1:] = request["arguments"]
    return str(request["program"])


def give_numbers(descriptors: Sequence[int], numbers: Sequence[int]) -> None:
    """Closes all descriptors but these and the standard streams."""
    top = max(*descriptors, *numbers) + 1
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, top) for fd in descriptors]
    os.closerange(3, top)
    for fd, number in zip(moved, numbers, strict=True):
        os.dup2(fd, number)
        os.close(fd)
