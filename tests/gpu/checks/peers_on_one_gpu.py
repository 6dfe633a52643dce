"""One rank, a process, of those that share a GPU.

The GPU is a FAKE. The processes map its memory as CUDA IPC lets them.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable

import numpy as np
from fake_gpus import Array, Driver, Gpu
from waiting import eventually

import pycollective as pc


def ways() -> list[str]:
    """Returns the algorithms of the world's calls."""
    calls = [call for call in pc.debug.dump()["calls"] if call["kind"] == "collective" and call["group"] == 0]
    return [call["algorithm"] for call in calls]


def collectives(group: pc.Group, gpu: Gpu) -> None:
    rank, size, stream = group.rank, group.size, gpu.stream()
    part = Array(gpu, np.arange(5) + 100 * rank, stream)
    parts = np.concatenate([np.arange(5) + 100 * each for each in range(size)])
    whole = Array(gpu, np.zeros(5 * size, np.int64), stream)
    assert "not known yet" in pc.explain("allgather", device="cuda")
    # the first call opens the arrays that other ranks offer, the next calls find them open
    for _ in range(3):
        whole.host[...] = 0
        assert pc.allgather(part, out=whole) is whole
        assert np.array_equal(whole.host, parts)
    work = pc.broadcast_async(part, 1)
    assert work.wait() is part
    assert part.host.tolist() == list(range(100, 105))
    sent = Array(gpu, np.arange(size) + 10 * rank, stream)
    received = Array(gpu, np.zeros(size, np.int64), stream)
    pc.alltoall(sent, out=received)
    assert received.host.tolist() == [rank + 10 * each for each in range(size)]
    assert ways()[-5:] == ["peers"] * 5, ways()

    assert "from array to array" in pc.explain("allgather", device="cuda")
    assert "share one GPU" in pc.explain("allgather", device="cuda")  # the reason against NCCL
    assert "through the host" in pc.explain("send", device="cuda")

    # Without kernels, calls that reduce go through the host. An array without a handle is copied to
    # memory that has one.
    x = Array(gpu, np.full(7, rank + 1.0), stream)
    pc.allreduce(x)
    assert x.host.tolist() == [size * (size + 1) / 2] * 7
    assert ways()[-1] != "peers"
    assert "rank 0 cannot reduce on its GPU" in pc.explain("allreduce", device="cuda")
    if rank == 1:
        make_pooled = gpu.driver.library.fake_cuda_make_pooled
        make_pooled.restype, make_pooled.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        part.at = make_pooled(part.host.nbytes)
        ctypes.memmove(part.at, part.host.ctypes.data, part.host.nbytes)
    whole.host[...] = 0
    staged = gpu.driver.control("calls", b"cuMemcpyDtoHAsync")
    pc.allgather(part, out=whole)
    assert whole.host.tolist() == list(range(100, 105)) * size
    assert gpu.driver.control("calls", b"cuMemcpyDtoHAsync") == staged


def a_rank_dies() -> str:
    """A rank dies in the call, when the others have announced their arrays and wait for it.

    Returns the error that each of them gets.
    """
    group, gpu = pc.world(), Gpu(Driver(1), 0)
    stream = gpu.stream()
    x = Array(gpu, np.arange(5), stream)
    pc.broadcast(x, 0)
    if group.rank == 1:
        gpu.fill(stream, x, 7, held=True)  # never made
        pc.broadcast_async(x, 0)
        group.barrier()
        os.kill(os.getpid(), signal.SIGKILL)
    work = pc.broadcast_async(x, 0)
    with contextlib.suppress(pc.PeerFailure):  # where it may die as well
        group.barrier()
    try:
        work.wait(host=True)
    except pc.PeerFailure as error:
        return str(error)
    return "nothing"


def interrupted_in(call: Callable[..., object], *arguments: object) -> None:
    """Makes the call, and raises Ctrl-C when it has begun."""

    def interrupt() -> None:
        assert eventually(lambda: any(each["state"] == "running" for each in pc.debug.dump()["calls"]))
        _thread.interrupt_main()

    other = threading.Thread(target=interrupt)
    other.start()
    try:
        call(*arguments)
    except KeyboardInterrupt:
        print("KeyboardInterrupt")
    finally:
        other.join()


def a_rank_is_interrupted(group: pc.Group, gpu: Gpu) -> None:
    """After the interrupt its array is its own again: a later rank does not write it."""
    aside = group.split(0)
    assert aside is not None
    x = Array(gpu, np.full(5, group.rank), gpu.stream())
    pc.broadcast(x, 0)
    x.host[...] = group.rank + 10
    word = np.zeros(1)
    if group.rank == 1:
        interrupted_in(pc.broadcast, x, 0)
        x.host[...] = 7
        aside.send(word, 0)
    else:
        aside.recv(word, 1)
    try:
        pc.broadcast(x, 0)
        raise AssertionError("the group goes on")
    except pc.CollectiveError as error:
        print(type(error).__name__)
    if group.rank == 1:
        aside.recv(word, 0)  # the other rank has finished its call
        assert x.host.tolist() == [7] * 5
    else:
        assert x.host.tolist() == [10] * 5
        aside.send(word, 1)
        with contextlib.suppress(pc.PeerFailure):
            aside.recv(word, 1)  # until the checks of the other rank have ended
    os._exit(0)


if __name__ == "__main__":
    here = Gpu(Driver(1), 0)
    globals()[sys.argv[1]](pc.init(), here)
    pc.shutdown()
