"""Every call with every dtype, on 1 to 8 ranks: one world of processes per size runs the matrix.

The daily run has a part of it in one of the two large worlds: sampled.py.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import sampled
from arrays import DTYPES, FLOATS, LIBRARIES, SHORT_FLOATS, numpy_dtype

import pycollective as pc
from pycollective import testing

SIZES = (1, 2, 3, 4, *sampled.some((5, 8), 1, of="sizes"))
COUNTS = (0, 1, 5, 1000)
LARGE = (70_001, 300_007)  # above the eager limit; more than one segment
OPS: dict[str, Any] = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}


def values(rank: int, count: int) -> Any:
    """Small whole numbers: sums and products of 8 ranks are exact (in uint8 modulo 256)."""
    return (np.arange(count) * 7 + rank * 3) % 2 + 1


def expected(op: str, dtype: str, size: int, count: int) -> Any:
    columns = [values(rank, count) for rank in range(size)]
    if op == "avg":
        return np.add.reduce(columns).astype(float) / size
    return OPS[op].reduce(columns).astype(numpy_dtype(dtype))


def cases(part: slice) -> list[tuple[Any, str, str, int]]:
    return list(every_case())[part]


def every_case() -> Iterator[tuple[Any, str, str, int]]:
    for library in LIBRARIES:
        for dtype in DTYPES:
            for op in (*OPS, *(("avg",) if dtype in FLOATS + SHORT_FLOATS else ())):
                for count in COUNTS + (
                    LARGE if (dtype, op) in (("float32", "sum"), ("int64", "max")) else ()
                ):
                    yield library, dtype, op, count


def assert_equal(library: Any, x: Any, want: Any, dtype: str, case: Any) -> None:
    got = library.to_numpy(x)
    if dtype in SHORT_FLOATS:  # an average is rounded at every step
        np.testing.assert_allclose(got.astype(float), np.asarray(want, float), rtol=1e-2, err_msg=str(case))
    else:
        np.testing.assert_array_equal(got, np.asarray(want).astype(dtype), err_msg=str(case))


def allreduce_and_reduce_everything(part: slice) -> int:
    done = 0
    for library, dtype, op, count in cases(part):
        rank, size = pc.rank(), pc.size()
        case = (library.name, dtype, op, count, size)
        want = expected(op, dtype, size, count)
        x = library.make(values(rank, count), dtype)
        out = library.make(np.zeros(count), dtype)
        assert pc.allreduce(x, op, out=out) is out
        assert_equal(library, out, want, dtype, case)
        assert_equal(library, x, values(rank, count), dtype, case)
        assert pc.allreduce(x, op) is x
        assert library.to_numpy(x).tobytes() == library.to_numpy(out).tobytes(), case
        root = done % size
        x = library.make(values(rank, count), dtype)
        assert pc.reduce(x, op, root=root) is x
        assert_equal(library, x, want if rank == root else values(rank, count), dtype, case)
        done += 1
    return done


def broadcast_from_every_rank() -> None:
    for root in range(pc.size()):
        for library in LIBRARIES:
            for dtype in DTYPES:
                for count in COUNTS + (LARGE if dtype == "float32" else ()):
                    x = library.make(values(pc.rank(), count), dtype)
                    assert pc.broadcast(x, root=root) is x
                    assert_equal(library, x, values(root, count), dtype, (root, library.name, dtype, count))
        pc.barrier()
    # dtypes that not every operation reduces, but all calls move
    for dtype in ("bool", "int16", "uint64", "complex64"):
        x = np.full(3, pc.rank()).astype(dtype)
        assert pc.broadcast(x, root=pc.size() - 1).tolist() == [np.array(pc.size() - 1).astype(dtype)] * 3


def send_around_the_ring() -> None:
    rank, size = pc.rank(), pc.size()
    if size == 1:
        return
    right, left = (rank + 1) % size, (rank - 1) % size
    for library in LIBRARIES:
        for dtype in DTYPES:
            x = library.make(values(rank, 100), dtype)
            y = library.make(np.zeros(100), dtype)
            steps = [lambda x=x: pc.send(x, right, tag=3), lambda y=y: pc.recv(y, left, tag=3)]
            for step in steps if rank % 2 == 0 else reversed(steps):
                step()
            assert_equal(library, y, values(left, 100), dtype, (library.name, dtype))


def whole_matrix(part: slice) -> int:
    done = allreduce_and_reduce_everything(part)
    broadcast_from_every_rank()
    send_around_the_ring()
    pc.barrier()
    return done


@pytest.mark.parametrize("n", SIZES)
def test_every_rank_gets_the_right_result_of_every_call(n: int) -> None:
    parts = [slice(None)] if sampled.FULL or n <= 4 else [slice(first, None, 4) for first in range(4)]
    (part,) = sampled.some(parts, 1, of="cases")
    done = testing.run(whole_matrix, n, part, timeout_s=100)
    assert done == [len(cases(part))] * n
    assert len(cases(slice(None))) > 100 * len(LIBRARIES)


def several_things_of_two_ranks() -> None:
    rank, peer = pc.rank(), 1 - pc.rank()
    # Tags are independent: the second message is taken first.
    a, b = np.full(3, 1.0), np.full(5, 2.0)
    if rank == 0:
        pc.send(a, peer, tag=1)
        pc.send(b, peer, tag=2)
    else:
        got_b, got_a = np.zeros(5), np.zeros(3)
        pc.recv(got_b, peer, tag=2)
        pc.recv(got_a, peer, tag=1)
        assert (got_a.tolist(), got_b.tolist()) == (a.tolist(), b.tolist())
    # Messages of one tag keep their order, small and large.
    for count in (1, 200_000, 2):
        x = np.full(count, float(count))
        if rank == 0:
            pc.send(x, peer, tag=(1 << 32) - 1)
        else:
            assert (pc.recv(np.zeros(count), peer, tag=(1 << 32) - 1) == count).all()
    # NaN and infinities are moved unchanged; min and max propagate NaN.
    x = np.array([np.nan if rank else 1.0, np.inf, -0.0], np.float32)
    got = pc.allreduce(x, "max")
    assert np.isnan(got[0])
    assert got[1] == np.inf
    # The average of large float16 numbers does not overflow.
    assert pc.allreduce(np.full(4, 60000, np.float16), "avg").tolist() == [60000] * 4
    # Integers wrap.
    assert pc.allreduce(np.full(2, 200, np.uint8)).tolist() == [144, 144]
    # 0-d arrays are arrays.
    assert pc.allreduce(np.array(rank + 1)) == 3


def test_two_ranks_and_their_messages() -> None:
    testing.run(several_things_of_two_ranks, 2)


def waits_while_another_thread_sends() -> None:
    if pc.rank() == 1:
        pc.recv(np.zeros(1), 0, tag=1)
        pc.send(np.ones(1), 0, tag=2)
        return
    entered = threading.Event()

    def other() -> None:
        entered.wait()
        pc.send(np.ones(1), 1, tag=1)

    thread = threading.Thread(target=other)
    thread.start()
    entered.set()
    pc.recv(np.zeros(1), 1, tag=2)  # arrives only if the other thread can run meanwhile
    thread.join()


def test_a_waiting_call_lets_other_threads_run() -> None:
    testing.run(waits_while_another_thread_sends, 2)


def comes_and_goes() -> list[float]:
    sums = []
    for _ in range(3):
        pc.init()
        sums.append(float(pc.allreduce(np.array([1.0]))[0]))
        pc.shutdown()
    return sums


def test_init_works_again_after_shutdown_with_several_ranks() -> None:
    assert testing.run(comes_and_goes, 2, init=False) == [[2.0] * 3] * 2


def by_hand(port: int) -> tuple[int, int, float]:
    import os

    rank = int(os.environ["PYCOLLECTIVE_RANK"])
    group = pc.init(f"127.0.0.1:{port}", rank=rank, size=2, timeout=30)
    total = float(group.allreduce(np.array([rank + 1.0]))[0])
    found = (pc.local_rank(), pc.local_size(), total)
    pc.shutdown()
    return found


def test_init_by_hand_joins_at_the_address_of_rank_0() -> None:
    from pycollective.launching.environment import free_port

    assert testing.run(by_hand, 2, free_port(), init=False) == [(0, 2, 3.0), (1, 2, 3.0)]
