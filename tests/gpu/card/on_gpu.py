"""What only a GPU can prove, through Python, with torch and CuPy if they are installed.

`scripts/test gpu` runs it.

usage: on_gpu.py [together | alone | list]: the checks of several ranks, or of one, instead of all;
or their names. Prints a line for each check. Ends with 1 if one failed, or, with
PYCOLLECTIVE_REQUIRE_GPU=1, if one could not be made.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import os
import signal
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from on_gpu_training import layers_of, trained

import pycollective as pc
from pycollective import testing
from pycollective.objects import object_codec

COUNT = 1 << 20
DELAY_CYCLES = 200_000_000  # about a tenth of a second
REPLAYS = 3
CALLS = 2000
SOON_S = 0.1


class NotMade(Exception):
    """The check needs what is not installed here."""


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


def jax_arrays_give_new_ones_on_the_gpu() -> str:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # the other ranks need memory too
    jax = library("jax")
    try:
        device = jax.devices("cuda")[0]
    except RuntimeError as error:
        raise NotMade(str(error)) from None
    for rounds in range(10):
        x = jax.device_put(jax.numpy.ones((2048, 2048), "float32"), device)
        y = (x @ x) * 0 + rounds  # JAX still computes it
        z = pc.allreduce(y)
        assert z.devices() == {device}
        assert bool((z == rounds).all()), z
        assert bool((y == rounds).all()), y
    assert pc.allgather(y.astype("bfloat16")).dtype == "bfloat16"
    return "10 rounds"


def the_host_is_given_back_soon() -> str:
    """Alternates with NCCL's own call, through CuPy."""
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
    return f"{a:.2f} us, NCCL through CuPy {b:.2f} us: {a - b:+.2f}"


def share_a_gpu() -> None:
    """Before NCCL is used: it refuses ranks of one host that share a GPU."""
    os.environ["NCCL_HOSTID"] = f"host {os.environ['RANK']}"
    os.environ |= {"NCCL_SOCKET_IFNAME": "lo", "NCCL_MAX_CTAS": "4", "NCCL_RAS_ENABLE": "0"}


def on_two_ranks_of_one_gpu() -> dict[str, Any]:
    share_a_gpu()
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
    pc.shutdown()
    return {"summed": summed, "equal": equal, "mismatch": mismatch}


def on_three_ranks_from_array_to_array() -> None:
    torch = cuda_torch()
    rank, size = pc.rank(), pc.size()
    stream = torch.cuda.Stream()
    for rounds in range(5):
        x, y = torch.zeros(COUNT, device="cuda"), torch.zeros(COUNT, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            if rank == rounds % size:
                torch.cuda._sleep(DELAY_CYCLES)
            x.fill_(rank + rounds)
            pc.allreduce(x, out=y)
            z = y.clone()  # on the same stream
        stream.synchronize()
        assert bool((z == 3 + 3 * rounds).all()), z
    way = pc.explain("allreduce", device="cuda")
    assert "from array to array" in way, way
    parts = torch.arange(2.0 * size, device="cuda") + 10 * rank
    counts = {"allgather": 2 * size * size, "reduce_scatter": 2, "alltoall": 2 * size, "scan": 2 * size}
    for name, count in counts.items():
        there, here = torch.zeros(count, device="cuda"), torch.zeros(count)
        getattr(pc, name)(parts, out=there)
        getattr(pc, name)(parts.cpu(), out=here)
        assert bool((there.cpu() == here).all()), (name, there)
    some = [torch.full((5,), float(rank), device="cuda"), torch.full((3, 2), 2.0 * rank, device="cuda")]
    works = [pc.allreduce_async(each) for each in some]
    for work in works:
        work.wait()
    pc.allreduce(some)
    assert [float(each.flatten()[0]) for each in some] == [9.0, 18.0], some


def on_two_ranks_that_exchange(by_nccl: bool) -> None:
    if by_nccl:
        share_a_gpu()
    torch = cuda_torch()
    pc.init()
    rank, other = pc.rank(), 1 - pc.rank()
    stream = torch.cuda.Stream()
    for rounds in range(10):
        x, y = torch.zeros(COUNT, device="cuda"), torch.full((COUNT,), -1.0, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            if rank == rounds % 2:
                torch.cuda._sleep(DELAY_CYCLES)
            x.fill_(rank + rounds)
            match rounds % 3:
                case 0:
                    pc.sendrecv(x, other, other, out=y)
                case 1:
                    works = pc.send_async(x, other), pc.recv_async(y, other)
                    for work in works:
                        work.wait()
                case _ if rank == 0:
                    pc.send(x, 1)
                    pc.recv(y, 1)
                case _:
                    pc.recv(y, 0)
                    pc.send(x, 0)
            z = y.clone()  # on the same stream
            x.fill_(-2)
        stream.synchronize()
        assert bool((z == other + rounds).all()), (rounds, z)
    way = pc.explain("send", device="cuda")
    assert f"to rank {other}: {'by NCCL' if by_nccl else 'from array to array'}" in way, way
    pc.shutdown()  # what this rank has sent may still be in transit


def objects_take_tensors_of_the_gpu() -> str:
    torch = cuda_torch()
    x = torch.arange(6, device="cuda").reshape(2, 3)
    y = object_codec.decode(object_codec.encode({"x": x.T}, most_nbytes=1 << 20))["x"]  # type: ignore[index]
    assert y.device == x.device, y.device
    assert torch.equal(y, x.T), y
    return f"on {y.device}"


def killed(by_nccl: bool = True) -> float:
    if by_nccl:
        share_a_gpu()
    torch = cuda_torch()
    pc.init(backend="nccl" if by_nccl else None)
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
    """Does not ask the driver: a process that has done so cannot fork ranks that use it."""
    if library("torch").version.cuda is None:
        raise NotMade("this torch is built without CUDA")


def two_ranks_by_the_host_id_way() -> str:
    torch_has_cuda()
    for said in testing.run(on_two_ranks_of_one_gpu, 2, init=False, timeout_s=120):
        assert said == {"summed": True, "equal": [True] * 3, "mismatch": "CollectiveMismatch"}, said
    return "allreduce, allgather, reduce_scatter, alltoall, mismatch"


def three_ranks_from_array_to_array() -> str:
    torch_has_cuda()
    testing.run(on_three_ranks_from_array_to_array, 3, timeout_s=120)
    return "5 rounds behind a late producer; allgather, reduce_scatter, alltoall, scan, a list, _async"


def messages_by_the_host_id_way() -> str:
    return exchanged(by_nccl=True)


def messages_from_array_to_array() -> str:
    return exchanged(by_nccl=False)


def exchanged(*, by_nccl: bool) -> str:
    torch_has_cuda()
    testing.run(on_two_ranks_that_exchange, 2, by_nccl, init=False, timeout_s=120)
    return "10 rounds behind a late producer: sendrecv, _async, blocking"


def a_killed_rank_is_noticed_by_the_other() -> str:
    return noticed(by_nccl=True)


def a_killed_rank_is_noticed_by_a_peer_of_its_gpu() -> str:
    return noticed(by_nccl=False)


def noticed(*, by_nccl: bool) -> str:
    torch_has_cuda()
    try:
        testing.run(killed, 2, by_nccl, init=False, timeout_s=120)
    except testing.WorldFailed as failed:
        assert list(failed.errors) == [1], failed
        seconds = failed.results[0]
        assert seconds < SOON_S, seconds
        return f"after {seconds * 1e3:.0f} ms"
    raise AssertionError("no rank was killed")


# ---- the backend of torch.distributed


def backend() -> tuple[Any, Any]:
    """Yields torch and torch.distributed, with the backend as the default group of two ranks."""
    share_a_gpu()
    torch = cuda_torch()
    torch.cuda.set_device(0)
    dist = torch.distributed
    dist.init_process_group("pycollective", timeout=timedelta(seconds=60))
    return torch, dist


def goes_by_device() -> None:
    torch, dist = backend()
    rank, size = dist.get_rank(), dist.get_world_size()
    for device in ("cpu", "cuda", "cpu"):
        for shape in ((6,), (2, 3)):
            x = torch.arange(6.0, device=device).reshape(shape) + rank
            x = x.t() if len(shape) == 2 else x  # not in one block
            wanted = (x - rank) * size + sum(range(size))
            dist.all_reduce(x)
            assert torch.equal(x, wanted), (device, x)
        parts = [torch.zeros(rank + 1, device=device) for _ in range(size)]
        given = [torch.full((each + 1,), float(rank), device=device) for each in range(size)]
        dist.all_to_all(parts, given)
        assert [part.tolist() for part in parts] == [[float(each)] * (rank + 1) for each in range(size)]
        x, y = torch.full((5,), float(rank), device=device), torch.zeros(5, device=device)
        works = dist.isend(x, (rank + 1) % size), dist.irecv(y, (rank - 1) % size)
        for work in works:
            work.wait()
        assert y.tolist() == [float((rank - 1) % size)] * 5, device
        sparse = torch.sparse_coo_tensor([[0, rank + 1]], [1.0, 2.0], (size + 1,), device=device)
        dist.all_reduce(sparse)
        assert sparse.to_dense().tolist() == [float(size)] + [2.0] * size, device
        whole = torch.zeros(2 * size, device=device)
        ops, name = torch.ops._c10d_functional, dist.group.WORLD.group_name
        ops.wait_tensor(ops.all_gather_into_tensor_out(x[:2].contiguous(), size, name, out=whole))
        assert whole.tolist() == [float(each) for each in range(size) for _ in range(2)], device
    dist.barrier(device_ids=[0])
    z = torch.zeros(3 if rank else 4, device="cuda")
    for failing in (
        lambda: dist.all_reduce(z, dist.ReduceOp.MIN, async_op=True).wait(),
        lambda: dist.all_reduce(z, dist.ReduceOp.MIN, async_op=True).get_future().wait(),
    ):  # through the host, so the group stays usable
        try:
            failing()
        except pc.CollectiveMismatch:
            continue
        raise AssertionError("no CollectiveMismatch")
    dist.destroy_process_group()


def data_parallel_trains_as_alone() -> None:
    share_a_gpu()
    torch = cuda_torch()
    pc.init()
    half = slice(8 * pc.rank(), 8 * pc.rank() + 8)
    for beside in (False, True):
        model = layers_of(torch)
        alone = trained(torch, copy.deepcopy(model), slice(0, 16))
        with torch.cuda.stream(torch.cuda.Stream() if beside else torch.cuda.current_stream()):
            torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
            ours = pc.torch.DataParallel(model, bucket_nbytes=5000, first_bucket_nbytes=1000)
            together = trained(torch, ours, half)
            ours.close()
        for mine, wanted in zip(together, alone, strict=True):
            torch.testing.assert_close(mine, wanted, rtol=1e-4, atol=1e-6)
    pc.shutdown()


def trains_as_alone() -> None:
    torch, dist = backend()
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    half = slice(8 * dist.get_rank(), 8 * dist.get_rank() + 8)
    for hook in (None, allreduce_hook, pc.torch.ddp_comm_hook):
        for beside in (False, True):
            model = layers_of(torch)
            alone = trained(torch, copy.deepcopy(model), slice(0, 16))
            with torch.cuda.stream(torch.cuda.Stream() if beside else torch.cuda.current_stream()):
                torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
                ddp = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0], bucket_cap_mb=0.005)
                if hook is not None:
                    ddp.register_comm_hook(None, hook)
                together = trained(torch, ddp, half)
            for mine, wanted in zip(together, alone, strict=True):
                torch.testing.assert_close(mine, wanted, rtol=1e-4, atol=1e-6)
    dist.destroy_process_group()


def waits_in_the_order_of_streams() -> None:
    torch, dist = backend()
    size, total = dist.get_world_size(), float(sum(range(dist.get_world_size())))
    dist.all_reduce(torch.ones(1, device="cuda"))  # connects the ranks
    producer, consumer = torch.cuda.Stream(), torch.cuda.Stream()
    for rounds in range(5):
        x, parts = torch.zeros(COUNT, device="cuda"), [torch.zeros(COUNT, device="cuda") for _ in range(size)]
        torch.cuda.synchronize()
        dist.barrier()
        with torch.cuda.stream(producer):
            torch.cuda._sleep(DELAY_CYCLES)
            x.fill_(dist.get_rank() + rounds)
            gathering = dist.all_gather(parts, x, async_op=True)
            reducing = dist.all_reduce(x, async_op=True)
            made = producer.record_event()
        future = reducing.get_future()
        doubled = future.then(lambda done: 2 * done.value()[0])
        with torch.cuda.stream(consumer):
            gathering.wait()
            reducing.wait()
            seen = [part.clone() for part in parts], x.clone(), doubled.wait().clone()
        waited = made.query()  # true if the producer has finished, so the host has waited
        assert not reducing.is_completed() or waited
        consumer.synchronize()
        assert not rounds or not waited, "the host waited for the producer"  # first it loads kernels
        assert all(bool((part == rank + rounds).all()) for rank, part in enumerate(seen[0]))
        assert bool((seen[1] == total + size * rounds).all())
        assert bool((seen[2] == 2 * (total + size * rounds)).all())
        assert reducing.wait(timedelta(seconds=20))
        assert reducing.is_completed()
    dist.destroy_process_group()


def together(function: Callable[[], None], says: str) -> str:
    torch_has_cuda()
    testing.run(function, 2, init=False, timeout_s=120)
    return says


def backend_goes_by_device() -> str:
    return together(
        goes_by_device, "calls of both devices in one group, sparse sums, barriers, errors in Futures"
    )


def data_parallel_trains_as_one_process_does() -> str:
    return together(data_parallel_trains_as_alone, "3 steps, also beside the default stream")


def backend_trains_as_one_process_does() -> str:
    return together(trains_as_alone, "3 steps of DDP, with and without hooks, also beside the default stream")


def backend_waits_in_the_order_of_streams() -> str:
    return together(waits_in_the_order_of_streams, "wait(), get_future() and then() behind a late producer")


ALONE: list[Callable[[], str]] = [
    torch_tensors_are_behind_their_producer,
    torch_work_orders_the_stream_of_the_moment,
    torch_memory_lives_until_the_call_has_ended,
    torch_graphs_replay_the_call,
    torch_lists_go_as_one,
    cupy_arrays_are_behind_their_producer,
    the_host_is_given_back_soon,
    objects_take_tensors_of_the_gpu,
]
if any(map(importlib.util.find_spec, ("jax_cuda13_plugin", "jax_cuda12_plugin"))):  # few machines have it
    ALONE.append(jax_arrays_give_new_ones_on_the_gpu)
TOGETHER: list[Callable[[], str]] = [
    two_ranks_by_the_host_id_way,
    a_killed_rank_is_noticed_by_the_other,
    three_ranks_from_array_to_array,
    messages_by_the_host_id_way,
    messages_from_array_to_array,
    a_killed_rank_is_noticed_by_a_peer_of_its_gpu,
    data_parallel_trains_as_one_process_does,
    backend_goes_by_device,
    backend_trains_as_one_process_does,
    backend_waits_in_the_order_of_streams,
]


def name_of(check: Callable[[], str]) -> str:
    return check.__name__.replace("_", " ")


def made(check: Callable[[], str]) -> str:
    """Prints a line with the outcome, and returns it: passed, failed or not made."""
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
    unknown = [*sys.argv[2:], *({which} - {"all", "together", "alone", "list"})]
    if unknown:
        print(f"unknown: {' '.join(unknown)}\n{__doc__}", file=sys.stderr)
        return 2
    if which == "list":
        for kind, checks in (("together", TOGETHER), ("alone", ALONE)):
            for check in checks:
                print(f"{kind}: {name_of(check)}")
        return 0
    required = os.environ.get("PYCOLLECTIVE_REQUIRE_GPU") == "1"
    if not pc.available("nccl"):
        print(f"not made: {pc.available('nccl')}")
        return int(required)
    # These run first, since they start processes.
    ended = [made(check) for check in TOGETHER] if which in ("all", "together") else []
    if which in ("all", "alone"):
        pc.init(backend="nccl")
        ended += [made(check) for check in ALONE]
        pc.shutdown()
    print(", ".join(f"{ended.count(how)} {how}" for how in ("passed", "failed", "not made")))
    return int(not set(ended) <= ({"passed"} if required else {"passed", "not made"}))


if __name__ == "__main__":
    sys.exit(main())
