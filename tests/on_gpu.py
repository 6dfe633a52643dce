"""What only a GPU can prove, through Python, with torch and CuPy as they are there. `scripts/test gpu` runs it.

usage: on_gpu.py [together | alone | list]: the checks of several ranks, or of one, instead of all; or their names.
Prints a line for each check. Ends with 1 if one failed, or, with PYCOLLECTIVE_REQUIRE_GPU=1, if one could not be made.
"""

from __future__ import annotations

import importlib
import os
import signal
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import pycollective as pc
from pycollective import testing

COUNT = 1 << 20
DELAY_CYCLES = 200_000_000  # about a tenth of a second
REPLAYS = 3
CALLS = 2000
SOON_S = 1.0


class NotMade(Exception):
    """The check needs what is not here."""


def library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise NotMade(str(error)) from None


def cuda_torch() -> Any:
    torch = library("torch")
    if not torch.cuda.is_available():
        raise NotMade("torch sees no GPU")
    return torch


def torch_tensors_are_behind_their_producer() -> str:
    torch = cuda_torch()
    stream = torch.cuda.Stream()
    for rounds in range(10):
        x, y = torch.zeros(COUNT, device="cuda"), torch.zeros(COUNT, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(DELAY_CYCLES)
            x.fill_(rounds + 1)
            pc.allreduce(x, out=y)
            z = y.clone()  # on the same stream
        stream.synchronize()
        assert bool((z == rounds + 1).all()), z
    return "10 rounds in line"


def torch_work_orders_the_stream_of_the_moment() -> str:
    torch = cuda_torch()
    producer, consumer = torch.cuda.Stream(), torch.cuda.Stream()
    for rounds in range(10):
        x, y = torch.zeros(COUNT, device="cuda"), torch.zeros(COUNT, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(producer):
            torch.cuda._sleep(DELAY_CYCLES)
            x.fill_(rounds + 1)
            work = pc.allreduce_async(x, out=y)
        with torch.cuda.stream(consumer):
            work.wait()
            z = y.clone()
        consumer.synchronize()
        assert bool((z == rounds + 1).all()), z
        assert work.wait(host=True) is y
    return "10 rounds beside"


def torch_memory_lives_until_the_call_has_ended() -> str:
    torch = cuda_torch()
    y = torch.zeros(COUNT, device="cuda")
    for rounds in range(10):
        torch.cuda._sleep(DELAY_CYCLES)
        work = pc.allreduce_async(torch.full((COUNT,), float(rounds), device="cuda"), out=y)
        other = torch.cuda.Stream()
        with torch.cuda.stream(other):  # would get the memory, if it were free
            waste = [torch.full((COUNT,), -1.0, device="cuda") for _ in range(8)]
        work.wait(host=True)
        torch.cuda.synchronize()
        assert bool((y == rounds).all()), y
        del waste
    return "10 rounds"


def torch_graphs_replay_the_call() -> str:
    torch = cuda_torch()
    x, y = torch.zeros(COUNT, device="cuda"), torch.zeros(COUNT, device="cuda")
    pc.allreduce(x, out=y)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        pc.allreduce(x, out=y)
        pc.allreduce_async(y).wait()
    for value in range(REPLAYS):
        x.fill_(value)
        graph.replay()
        torch.cuda.synchronize()
        assert bool((y == value).all()), y
    return f"{REPLAYS} replays"


def torch_lists_go_as_one() -> str:
    torch = cuda_torch()
    tensors = [torch.full((n,), float(n), device="cuda") for n in (1, 7, COUNT)]
    assert pc.allreduce(tensors) is tensors
    torch.cuda.synchronize()
    assert all(bool((x == len(x)).all()) for x in tensors)
    return "3 tensors"


def cupy_arrays_are_behind_their_producer() -> str:
    cupy = library("cupy")
    stream = cupy.cuda.Stream(non_blocking=True)
    for rounds in range(10):
        x, y = cupy.zeros(COUNT, "float32"), cupy.zeros(COUNT, "float32")
        big = cupy.ones(1 << 26, "float32")
        cupy.cuda.Device().synchronize()
        with stream:
            for _ in range(50):
                big *= 1.0001
            x.fill(rounds + 1)
            pc.allreduce(x, out=y)
            z = y.copy()
        stream.synchronize()
        assert bool((z == rounds + 1).all()), z
    gathered = pc.allgather(x)
    assert type(gathered) is type(x)
    assert gathered.shape == x.shape
    return "10 rounds in line"


def the_host_is_given_back_soon() -> str:
    """Beside NCCL's own call, through CuPy, in turns."""
    cupy = library("cupy")
    nccl = importlib.import_module("cupy.cuda.nccl")
    if not nccl.available:
        raise NotMade("CuPy has no NCCL")
    communicator = nccl.NcclCommunicator(1, nccl.get_unique_id(), 0)
    x = cupy.zeros(2, "float32")
    stream = cupy.cuda.Stream(non_blocking=True)
    ours, raw = [], []
    with stream:
        for call in range(CALLS):
            began = time.perf_counter()
            communicator.allReduce(x.data.ptr, x.data.ptr, 2, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, stream.ptr)
            between = time.perf_counter()
            pc.allreduce(x)
            raw.append(between - began)
            ours.append(time.perf_counter() - between)
            if call % 100 == 0:
                stream.synchronize()
    a, b = statistics.median(ours) * 1e6, statistics.median(raw) * 1e6
    return f"{a:.2f} us, NCCL through CuPy {b:.2f} us: {a - b:+.2f} (bar: +2)"


def on_two_ranks_of_one_gpu() -> dict[str, Any]:
    os.environ["NCCL_HOSTID"] = f"host {os.environ['RANK']}"
    os.environ |= {"NCCL_SOCKET_IFNAME": "lo", "NCCL_MAX_CTAS": "4", "NCCL_RAS_ENABLE": "0"}
    torch = cuda_torch()
    pc.init(backend="nccl")
    rank, size = pc.rank(), pc.size()
    x = torch.arange(1000.0, device="cuda") + rank
    pc.allreduce(x)
    summed = bool((x == 2 * torch.arange(1000.0, device="cuda") + 1).all())
    parts = torch.arange(2.0 * size, device="cuda") + 10 * rank
    host = parts.cpu()
    equal = []
    for name, shape in (("allgather", (4 * size,)), ("reduce_scatter", (2,)), ("alltoall", (2 * size,))):
        there, here = torch.zeros(shape, device="cuda"), torch.zeros(shape)
        getattr(pc, name)(parts, out=there)
        getattr(pc, name)(host, out=here)
        equal.append(bool((there.cpu() == here).all()))
    op: Any = "prod" if rank else "sum"
    try:
        pc.allreduce_async(x, op).wait(host=True)
        mismatch = "none"
    except pc.CollectiveError as error:
        mismatch = type(error).__name__
    pc.resync()
    return {"summed": summed, "equal": equal, "mismatch": mismatch}


def killed() -> float:
    os.environ["NCCL_HOSTID"] = f"host {os.environ['RANK']}"
    os.environ |= {"NCCL_SOCKET_IFNAME": "lo", "NCCL_MAX_CTAS": "4", "NCCL_RAS_ENABLE": "0"}
    torch = cuda_torch()
    pc.init(backend="nccl")
    x = torch.ones(1000, device="cuda")
    pc.allreduce(x)
    torch.cuda.synchronize()
    pc.barrier()
    if pc.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    try:
        pc.allreduce_async(x).wait(host=True)
    except pc.PeerFailure:
        return time.monotonic() - began
    raise AssertionError("no PeerFailure")


def torch_has_cuda() -> None:
    """Without asking the driver: a process that has cannot fork ranks that use it."""
    if library("torch").version.cuda is None:
        raise NotMade("this torch is built without CUDA")


def two_ranks_by_the_host_id_way() -> str:
    torch_has_cuda()
    for said in testing.run(on_two_ranks_of_one_gpu, 2, init=False, timeout_s=120):
        assert said == {"summed": True, "equal": [True] * 3, "mismatch": "CollectiveMismatch"}, said
    return "allreduce, allgather, reduce_scatter, alltoall, mismatch"


def a_killed_rank_is_noticed_by_the_other() -> str:
    torch_has_cuda()
    try:
        testing.run(killed, 2, init=False, timeout_s=120)
    except testing.WorldFailed as failed:
        assert list(failed.errors) == [1], failed
        seconds = failed.results[0]
        assert seconds < SOON_S, seconds
        return f"after {seconds * 1e3:.0f} ms"
    raise AssertionError("nobody was killed")


ALONE: list[Callable[[], str]] = [
    torch_tensors_are_behind_their_producer,
    torch_work_orders_the_stream_of_the_moment,
    torch_memory_lives_until_the_call_has_ended,
    torch_graphs_replay_the_call,
    torch_lists_go_as_one,
    cupy_arrays_are_behind_their_producer,
    the_host_is_given_back_soon,
]
TOGETHER: list[Callable[[], str]] = [two_ranks_by_the_host_id_way, a_killed_rank_is_noticed_by_the_other]


def name_of(check: Callable[[], str]) -> str:
    return check.__name__.replace("_", " ")


def made(check: Callable[[], str]) -> str:
    """Passed, failed or not made; prints a line that says so."""
    try:
        said, how = check(), "passed"
    except NotMade as error:
        said, how = str(error), "not made"
    except Exception as error:
        traceback.print_exc()
        said, how = f"{type(error).__name__}: {error}".splitlines()[0], "failed"
    print(f"{how:9} {name_of(check)}: {said}", flush=True)
    return how


def main() -> int:
    which = sys.argv[1] if len(sys.argv) > 1 else "all"
    if which == "list":
        for kind, checks in (("together", TOGETHER), ("alone", ALONE)):
            for check in checks:
                print(f"{kind}: {name_of(check)}")
        return 0
    required = os.environ.get("PYCOLLECTIVE_REQUIRE_GPU") == "1"
    if not pc.available("nccl"):
        print(f"not made: {pc.available('nccl')}")
        return int(required)
    # First, since these start processes.
    ended = [made(check) for check in TOGETHER] if which in ("all", "together") else []
    if which in ("all", "alone"):
        pc.init(backend="nccl")
        ended += [made(check) for check in ALONE]
        pc.shutdown()
    print(", ".join(f"{ended.count(how)} {how}" for how in ("passed", "failed", "not made")))
    return int(not set(ended) <= ({"passed"} if required else {"passed", "not made"}))


if __name__ == "__main__":
    sys.exit(main())
