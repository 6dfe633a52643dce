"""Calls in the background: order, results, asyncio, and that none of them gets lost.

How they fail: test_async_errors.py.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from waiting import LATE_S, eventually

import pycollective as pc
from pycollective import testing

# ---- results


def every_function() -> None:
    rank, size = pc.rank(), pc.size()
    x, out = np.full(1000, rank + 1.0), np.zeros(1000)
    works: list[pc.Work[Any]] = [
        pc.allreduce_async(x, "max", out=out),
        pc.broadcast_async(root := np.full(3, rank), 1),
        pc.reduce_async(total := np.full(3, rank + 1), root=0),
        pc.barrier_async(),
        pc.world().recv_async(got := np.zeros(2), (rank - 1) % size, tag=4),
        pc.world().send_async(np.full(2, float(rank)), (rank + 1) % size, tag=4),
    ]
    results = [work.wait() for work in works]
    assert results[0] is out
    assert results[1] is root
    assert results[2] is total
    assert results[4] is got
    assert results[3] is None
    assert out.tolist() == [size] * 1000
    assert x.tolist() == [rank + 1.0] * 1000
    assert root.tolist() == [1] * 3
    assert got.tolist() == [(rank - 1) % size] * 2
    assert rank != 0 or total.tolist() == [size * (size + 1) // 2] * 3
    assert all(work.done() and work.exception() is None for work in works)
    assert works[0].result() is out, "it can be asked again"


def test_every_function_returns_what_its_blocking_form_does() -> None:
    testing.run(every_function, 3)


def lists_of(count: int) -> None:
    rank, size = pc.rank(), pc.size()
    total = size * (size + 1) // 2

    def fresh() -> list[Any]:
        return [np.full(count, rank + 1.0), {"b": np.full((2, 3), rank + 1.0), "a": np.zeros(0)}]

    def numbers(x: list[Any]) -> set[float]:
        return {*x[0].tolist(), *x[1]["b"].ravel().tolist()}

    summed, sent, first, before, upto = (fresh() for _ in range(5))
    works = [
        pc.allreduce_async(summed),
        pc.broadcast_async(sent, size - 1),
        pc.reduce_async(first, "max", root=0),
        pc.exscan_async(before),
        pc.scan_async(upto, pc.scaled("sum", 2)),
    ]
    assert all(
        work.wait(LATE_S) is x for work, x in zip(works, (summed, sent, first, before, upto), strict=True)
    )
    assert numbers(summed) == {total}
    assert numbers(sent) == {size}
    assert numbers(first) == {size if rank == 0 else rank + 1}
    assert rank == 0 or numbers(before) == {rank * (rank + 1) // 2}
    assert numbers(upto) == {(rank + 1) * (rank + 2)}
    assert pc.allreduce_async([]).wait() == []


@pytest.mark.parametrize("count", [5, 200_000])  # copied into one block, and sent without packing
@pytest.mark.parametrize("n", [1, 2, 3])
def test_lists_are_one_call(n: int, count: int) -> None:
    testing.run(lists_of, n, count)


def lists_that_are_refused() -> None:
    frozen = np.ones(2)
    frozen.setflags(write=False)
    for x, kind, words in (
        (
            [np.ones((4, 4))[:, ::2]],
            pc.Unsupported,
            r"allreduce_async: x\[0\] has gaps",
        ),
        ([np.ones(2), np.ones(2, int)], pc.Unsupported, "arrays of float64 and int64"),
        ({"a": frozen}, pc.InvalidArgument, r"x\['a'\]"),
        ([1, 2], pc.InvalidArgument, r"call allreduce\(\)"),
    ):
        with pytest.raises(kind, match=words):
            pc.allreduce_async(x)
    with pytest.raises(pc.InvalidArgument, match="waits: call it without _async"):
        pc.allreduce_async([np.ones(2)], reproducible="world")
    assert pc.allreduce_async([np.ones(2)]).wait()[0].tolist() == [pc.size()] * 2


def test_lists_that_must_be_copied_are_refused() -> None:
    testing.run(lists_that_are_refused, 2)


def information() -> None:
    work = pc.allreduce_async(np.zeros(8, np.float32))
    work.wait()
    info = work.info()
    assert info.pop("elapsed_s") >= 0
    assert "allreduce #2" in info["operation"]
    assert info.pop("operation") in repr(work)
    assert info == {"state": "done", "rank": pc.rank(), "size": 2, "sequence": 2, "nbytes": 32}
    assert "done" in repr(work)


def test_a_work_knows_its_call() -> None:
    testing.run(information, 2)


def test_a_world_of_one_is_done_at_once(world_of_one: pc.Group) -> None:
    x = np.arange(3.0)
    work = pc.allreduce_async(x)
    assert work.done()
    assert work.wait(0) is x
    assert work.result() is x
    assert not any(thread.startswith("pc-progress") for thread in threads())


def threads() -> list[str]:
    return [(task / "comm").read_text() for task in Path("/proc/self/task").iterdir()]


def only_with_the_first_call() -> None:
    pc.allreduce(np.zeros(3))
    assert not any(name.startswith("pc-progress") for name in threads())
    pc.barrier_async().wait()
    assert any(name.startswith("pc-progress") for name in threads())
    pc.shutdown()
    assert not any(name.startswith("pc-progress") for name in threads())


def test_the_thread_starts_with_the_first_call_and_ends_with_the_world() -> None:
    testing.run(only_with_the_first_call, 2)


# ---- order


def thousand() -> None:
    lock, peer = threading.Lock(), 1 - pc.rank()
    errors: list[BaseException] = []

    def messages(tag: int) -> None:
        try:
            out, got = np.arange(125) * 10 + tag, np.zeros(125, np.int64)
            works = [pc.recv_async(got[i : i + 1], peer, tag=tag) for i in range(125)]
            works += [pc.send_async(out[i : i + 1], peer, tag=tag) for i in range(125)]
            for work in works:
                work.wait()
            assert (got == out).all()
        except BaseException as error:
            errors.append(error)

    def sums(count: int) -> None:
        try:
            with lock:  # the caller orders the calls of a group; these are all alike
                arrays = [np.full(4, pc.rank() + 1) for _ in range(count)]
                works = [pc.allreduce_async(x) for x in arrays]
            works[-1].wait()
            assert all(work.done() for work in works), "they end in order"
            assert all(work.wait().tolist() == [3] * 4 for work in works)
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=messages, args=(tag,)) for tag in range(4)]
    workers += [threading.Thread(target=sums, args=(250,)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0]


def test_thousands_of_calls_of_several_threads_are_right_and_in_order() -> None:
    testing.run(thousand, 2)


def after_those_before() -> None:
    works = [pc.allreduce_async(np.ones(50_000)) for _ in range(5)]
    pc.barrier()
    assert all(work.done() for work in works)


def test_a_blocking_call_comes_after_those_that_were_begun_before_it() -> None:
    testing.run(after_those_before, 2)


def ring() -> None:
    rank, size = pc.rank(), pc.size()
    x, y = np.full(200_000, float(rank)), np.zeros(200_000)
    work = pc.send_async(x, (rank + 1) % size)
    assert pc.recv(y, (rank - 1) % size)[0] == (rank - 1) % size
    work.wait()


def test_a_large_send_that_was_begun_does_not_keep_a_receive_waiting() -> None:
    testing.run(ring, 3)


# ---- waiting


def wait_twice() -> None:
    got = np.zeros(1)
    if pc.rank() == 0:
        work = pc.recv_async(got, 1)
        for timeout in (0, 0.05):
            with pytest.raises(pc.CollectiveTimeout, match=r"recv from rank 1.*The call goes on"):
                work.wait(timeout)
        with pytest.raises(pc.CollectiveTimeout):
            work.exception(0.01)
        assert not work.done()
        assert work.info()["state"] == "running"
    pc.barrier()
    if pc.rank() == 1:
        pc.send(np.ones(1), 0)
    else:
        assert work.wait(LATE_S) is got
        assert got[0] == 1


def test_a_wait_that_times_out_leaves_the_call_and_can_be_repeated() -> None:
    testing.run(wait_twice, 2)


def deadline() -> None:
    if pc.rank() == 0:
        work = pc.recv_async(np.zeros(1), 1, timeout=0.2)
        assert eventually(work.done), "it ends without a wait"
        with pytest.raises(pc.CollectiveTimeout, match="recv from rank 1"):
            work.wait()
        assert isinstance(work.exception(), pc.CollectiveTimeout)
    pc.barrier()


def test_a_call_has_a_deadline_of_its_own() -> None:
    testing.run(deadline, 2)


def interrupted() -> None:
    if pc.rank() == 0:
        got = np.zeros(1)
        work = pc.recv_async(got, 1)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            work.wait()
        assert not work.done()
        pc.barrier()
        assert work.wait() is got
        assert got[0] == 1
    else:
        pc.barrier()
        pc.send(np.ones(1), 0)


def test_ctrl_c_ends_the_wait_and_not_the_call() -> None:
    testing.run(interrupted, 2)


# ---- dropping


def drop() -> None:
    x = np.ones(100_000)
    references = sys.getrefcount(x)
    pc.allreduce_async(x)
    pc.allreduce_async(np.ones(100_000))  # the program keeps no reference to that array
    pc.barrier()
    assert x[0] == x[-1] == pc.size()
    assert eventually(lambda: sys.getrefcount(x) == references), "the array is let go"


def test_a_dropped_work_goes_on_and_its_array_stays_until_then() -> None:
    testing.run(drop, 2)


def drop_while_held() -> None:
    if pc.rank() == 0:
        buffer = bytearray(8)
        pc.recv_async(buffer, 1)
        gc.collect()
        with pytest.raises(BufferError):
            buffer.append(0)
        pc.barrier()

        def free() -> bool:
            try:
                buffer.append(0)
            except BufferError:
                return False
            return True

        assert eventually(free)
        assert bytes(buffer[:8]) == b"12345678"
    else:
        pc.barrier()
        pc.send(bytearray(b"12345678"), 0)


def test_memory_cannot_move_while_a_dropped_call_writes_it() -> None:
    testing.run(drop_while_held, 2)


# ---- asyncio


async def tasks_of_one_rank() -> list[float]:
    rank, size = pc.rank(), pc.size()
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            beats += 1
            await asyncio.sleep(0)

    async def total(i: int) -> float:
        return float((await pc.allreduce_async(np.full(10, float(i))))[0])

    async def late() -> float:
        return float((await pc.recv_async(np.zeros(1), (rank - 1) % size, tag=1))[0])

    heart, received = asyncio.create_task(beat()), asyncio.create_task(late())
    sums = await asyncio.gather(*[total(i) for i in range(20)])
    before = beats
    await asyncio.sleep(0)
    assert not received.done()
    await pc.barrier_async()
    await pc.send_async(np.full(1, float(rank)), (rank + 1) % size, tag=1)
    assert await received == (rank - 1) % size
    assert beats > before, "the loop was not blocked"
    with pytest.raises(pc.CollectiveTimeout):
        await pc.recv_async(np.zeros(1), (rank - 1) % size, tag=2, timeout=0.1)
    heart.cancel()
    return sums


def in_a_loop() -> list[float]:
    descriptors = len(os.listdir("/proc/self/fd"))
    pc.barrier_async().wait()
    sums = asyncio.run(tasks_of_one_rank())
    assert len(os.listdir("/proc/self/fd")) == descriptors
    return sums


def test_works_are_awaited_by_several_tasks_of_a_loop() -> None:
    assert testing.run(in_a_loop, 2) == [[2.0 * i for i in range(20)]] * 2


async def cancelled() -> None:
    if pc.rank() == 0:
        got = np.zeros(1)
        work = pc.recv_async(got, 1)

        async def wait() -> None:
            await work

        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(wait(), 0.05)
        assert not work.done()
        pc.barrier()
        assert (await work)[0] == 1
    else:
        pc.barrier()
        pc.send(np.ones(1), 0)


def run_cancelled() -> None:
    asyncio.run(cancelled())


def test_cancelling_a_task_leaves_the_call_as_it_is() -> None:
    testing.run(run_cancelled, 2)


# ---- the end


def wait_beside_shutdown(fifo: str) -> None:
    """The other rank shuts down only when the main thread waits, which outlasts our shutdown()."""
    if pc.rank() == 1:
        Path(fifo).read_text()
        pc.shutdown(timeout=LATE_S)
        return
    world, work = pc.world(), pc.recv_async(np.zeros(1), 1)
    leaving = threading.Thread(target=pc.shutdown, kwargs={"timeout": LATE_S})

    def in_the_wait(number: int, frame: Any) -> None:
        Path(fifo).write_text("come")
        leaving.join(LATE_S)

    leaving.start()
    assert eventually(lambda: "shut down" in repr(world))
    signal.signal(signal.SIGALRM, in_the_wait)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    with pytest.raises((pc.NotInitialized, pc.PeerExited)):
        work.wait(LATE_S)
    assert not leaving.is_alive()
    assert work.done()
    assert isinstance(work.exception(), (pc.NotInitialized, pc.PeerExited))


def test_a_wait_that_begins_during_shutdown_ends_with_an_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "come")
    testing.run(wait_beside_shutdown, 2, str(tmp_path / "come"))


def leave_with_calls_under_way() -> None:
    works = [pc.allreduce_async(np.ones(10_000)) for _ in range(20)]
    never = pc.recv_async(np.zeros(1), 1 - pc.rank())
    pc.shutdown()
    assert all(work.wait()[0] == 2 for work in works)
    with pytest.raises((pc.NotInitialized, pc.PeerExited)):
        never.wait()
    with pytest.raises(pc.NotInitialized):
        pc.barrier_async()


def test_shutdown_ends_what_is_under_way() -> None:
    testing.run(leave_with_calls_under_way, 2)


EXIT = """
import sys
import numpy as np
import pycollective as pc
pc.init(sys.argv[1], rank=int(sys.argv[2]), size=2, timeout=30)
kept = [pc.allreduce_async(np.ones(10_000)) for _ in range(5)]
kept.append(pc.recv_async(np.zeros(1), 1 - pc.rank()))
"""


def test_an_interpreter_may_end_with_calls_under_way(tmp_path: Any) -> None:
    address = f"file://{tmp_path}/rendezvous"
    ranks = [
        subprocess.Popen([sys.executable, "-c", EXIT, address, str(rank)], stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    for rank in ranks:
        _, text = rank.communicate(timeout=LATE_S)
        assert rank.returncode == 0, text
        assert "Traceback" not in text
        assert "Fatal" not in text


def fork() -> None:
    work = pc.recv_async(got := np.zeros(1), 1 - pc.rank())
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for call in (work.wait, work.done, work.info, work.exception, pc.barrier_async):
                with pytest.raises(pc.ForkedProcess):
                    call()
            assert "parent" in repr(work)
            del work
            gc.collect()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    pc.send(np.ones(1), 1 - pc.rank())
    assert work.wait()[0] == got[0] == 1


def test_a_forked_child_cannot_use_the_works_of_its_parent() -> None:
    testing.run(fork, 2)
