"""Messages of a size that the receiver does not know beforehand, and messages that cross."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from arrays import torch
from waiting import LATE_S, eventually

import pycollective as pc
from pycollective import testing
from pycollective.calls.messages import _dtype_called

RECORD = np.dtype([("id", "<i4"), ("at", "<M8[s]"), ("xyz", "<f4", (3,))])
SPREAD = np.dtype({"names": ["a", "b"], "formats": ["u1", "f8"], "offsets": [0, 16], "itemsize": 32})
DTYPES: list[Any] = [
    "bool", "int8", "uint16", "int64", "float16", "float32", "float64", "complex64", "complex128",
    ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2,
    "datetime64[D]", "timedelta64[25us]", "S5", "U3", "V7", "longdouble", RECORD, SPREAD,
]  # fmt: skip
SHAPES: list[tuple[int, ...]] = [(), (0,), (1,), (3, 0, 2), (2, 3, 4), (1, 1, 70_000)]


def sample(dtype: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    dtype = np.dtype(dtype)
    count = int(np.prod(shape))
    nbytes = np.arange(count * dtype.itemsize) % (2 if dtype.kind == "b" else 120)
    return nbytes.astype(np.uint8).view(dtype).reshape(shape)


def everything_as_it_comes() -> None:
    for dtype in DTYPES:
        for shape in SHAPES:
            x = sample(dtype, shape)
            if pc.rank() == 0:
                pc.send(x, 1, tag=4)
                continue
            got = pc.recv(None, 0, tag=4)
            assert (got.dtype, got.shape) == (x.dtype, x.shape)
            assert got.tobytes() == x.tobytes()
            assert got.flags.writeable


def test_a_receiver_that_knows_nothing_gets_the_senders_dtype_and_shape() -> None:
    testing.run(everything_as_it_comes, 2)


def of_all_libraries() -> None:
    import jax.numpy as jnp

    kinds = [
        lambda: np.ones((4, 6)).T[::2],
        lambda: 2.5,
        lambda: [1, 2, 3],
        lambda: jnp.ones((2, 3)),
        lambda: bytearray(b"abc"),
    ]
    if torch is not None:
        kinds += [lambda: torch.ones(3, 5), lambda: torch.ones(4, 4, dtype=torch.bfloat16).t()]
    shapes = [(3, 4), (), (3,), (2, 3), (3,), (3, 5), (4, 4)]
    for make, shape in zip(kinds, shapes, strict=False):
        if pc.rank() == 0:
            pc.send(make(), 1)
        else:
            assert pc.recv(None, 0).shape == shape
    # A list is sent as one message per dtype.
    if pc.rank() == 0:
        pc.send([np.ones(2), np.arange(3)], 1)
    else:
        assert [pc.recv(None, 0).tolist(), pc.recv(None, 0).tolist()] == [[1, 1], [0, 1, 2]]


def test_what_any_library_sends_can_be_received_as_it_comes() -> None:
    testing.run(of_all_libraries, 2)


def gather_by_hand() -> None:
    import jax.numpy as jnp

    rank, size = pc.rank(), pc.size()
    targets = [
        lambda: np.zeros(3, np.float32),
        lambda: np.zeros((3, 2), np.float32)[:, 0],
        lambda: None,
        lambda: jnp.zeros(3, np.float32),
        lambda: [np.zeros(3, np.float32)],
    ]
    for tag, target in enumerate(targets):
        if rank != 0:
            for i in range(5):
                x = np.full(3, 10.0 * rank + i, np.float32)
                pc.send([x] if isinstance(target(), list) else x, 0, tag=tag)
            continue
        seen: dict[int, list[float]] = {source: [] for source in range(1, size)}
        for _ in range(5 * (size - 1)):
            got, source = pc.recv(target(), pc.ANY_SOURCE, tag=tag, with_source=True)
            got = got[0] if isinstance(got, list) else got
            assert (np.asarray(got) == got[0]).all()
            seen[source].append(float(got[0]))
        for source, values in seen.items():
            assert values == [10.0 * source + i for i in range(5)]  # in the order they were sent


@pytest.mark.parametrize("n", [2, 3, 5])
def test_from_any_source_everything_comes_once_in_each_ranks_order(n: int) -> None:
    testing.run(gather_by_hand, n)


def in_a_group() -> None:
    pair = pc.group([2, 1])
    if pair is None:
        return
    if pair.rank == 1:
        pair.send(np.arange(3), 0)
    else:
        got, source = pair.recv(None, pc.ANY_SOURCE, with_source=True)
        assert (got.tolist(), source) == ([0, 1, 2], 1)


def test_the_source_is_a_rank_of_the_group() -> None:
    testing.run(in_a_group, 3)


def round_a_ring() -> None:
    import jax.numpy as jnp

    rank, size = pc.rank(), pc.size()
    left, right = (rank - 1) % size, (rank + 1) % size
    for count in (0, 1, 1000, 300_000):  # larger than the buffers of a connection
        got = pc.sendrecv(np.full(count, rank), right, left)
        assert got.tolist() == [left] * count
    out = np.zeros(4)
    assert pc.sendrecv(np.full(4, float(rank)), right, left, out=out) is out
    assert (out == left).all()
    column = np.zeros((4, 3))
    pc.sendrecv(np.full((4, 2), float(rank))[:, 1], right, left, out=column[:, 1])
    assert (column == [0, left, 0]).all()
    assert type(pc.sendrecv(jnp.full(3, rank), right, left)) is type(jnp.zeros(1))
    assert pc.sendrecv(rank, right, left, tag=5) == left
    if torch is not None:
        assert pc.sendrecv(torch.full((3,), rank), right, left).tolist() == [left] * 3
    peer = rank ^ 1
    if peer < size:
        assert pc.sendrecv(np.array([rank]), peer) == peer


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_sendrecv_passes_arrays_round_a_ring(n: int) -> None:
    testing.run(round_a_ring, n)


def to_oneself() -> None:
    group = pc.world()
    for members in (group, group.split(pc.rank())):  # a group of one, too
        assert members is not None
        me = members.rank
        for count in (0, 1, 1000, 16_384, 16_385, 300_000):  # around 64 KiB, above which a send waits
            x, y = np.arange(count, dtype=np.float32), np.empty(count, np.float32)
            work = members.send_async(x, me, tag=1)
            assert members.recv(y, me, tag=1) is y
            work.wait()
            np.testing.assert_array_equal(x, y)
            y[:] = -1
            work = members.recv_async(y, me, tag=1)
            members.send(x, me, tag=1)
            work.wait()
            np.testing.assert_array_equal(x, y)
        for number in range(5):
            members.send(np.array([number]), me, tag=2)
            members.send(np.array([-number]), me, tag=3)
        assert [int(members.recv(None, me, tag=3)[0]) for _ in range(5)] == [0, -1, -2, -3, -4]
        assert [int(members.recv(None, me, tag=2)[0]) for _ in range(5)] == [0, 1, 2, 3, 4]
        members.send([np.ones(2), np.ones(3, np.int32)], me)
        first, second = members.recv([np.empty(2), np.empty(3, np.int32)], me)
        assert (first.tolist(), second.tolist()) == ([1, 1], [1, 1, 1])
        members.send(np.array([7]), me)
        value, source = members.recv(None, pc.ANY_SOURCE, with_source=True)
        assert (value.tolist(), source) == ([7], me)
        members.send_object({"me": me}, me)
        assert members.recv_object(me) == {"me": me}
        with pytest.raises(pc.CollectiveTimeout, match=f"recv from rank {me}"):
            members.recv(np.empty(1), me, timeout=0.05)
        with pytest.raises(pc.CollectiveTimeout, match=f"send to rank {me}"):
            members.send(np.empty(100_000), me, timeout=0.05)
        with pytest.raises(pc.CollectiveTimeout, match="gave up sending"):
            members.recv(np.empty(100_000), me)
        members.send(np.ones(2, np.float32), me)
        with pytest.raises(pc.CollectiveMismatch, match=r"float32\[2\]"):
            members.recv(np.empty(2), me)
        members.send(np.ones(2), me)
        assert members.recv(np.empty(2), me).tolist() == [1, 1]
    assert pc.allreduce(1) == pc.size()


@pytest.mark.parametrize(("n", "transport"), [(1, "auto"), (2, "shm"), (2, "tcp")])
def test_a_rank_sends_messages_to_itself(n: int, transport: str) -> None:
    testing.run(to_oneself, n, env={"PYCOLLECTIVE_TRANSPORT": transport})


def in_another_thread(call: Callable[[], object], end: Callable[[], object]) -> BaseException:
    """Returns the error of a call that waits in another thread, after `end` has ended it."""
    errors: list[BaseException] = []

    def waits() -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    before = len(pc.debug.dump()["calls"])
    thread = threading.Thread(target=waits, daemon=True)
    thread.start()
    assert eventually(lambda: len(pc.debug.dump()["calls"]) > before)
    end()
    thread.join(LATE_S)
    (error,) = errors
    return error


def interrupted(call: Callable[[], object]) -> None:
    """Makes the call, and presses Ctrl-C when it has begun."""
    before = len(pc.debug.dump()["calls"])

    def interrupt() -> None:
        assert eventually(lambda: len(pc.debug.dump()["calls"]) > before)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    call()


def waits_for_itself() -> None:
    group = pc.world().split(0)
    assert group is not None
    me = group.rank
    assert isinstance(in_another_thread(lambda: group.recv(np.empty(1), me), group.close), pc.NotInitialized)
    for waits in (lambda: pc.recv(np.empty(1), me), lambda: pc.recv_async(np.empty(1), me, tag=1).wait()):
        with pytest.raises(KeyboardInterrupt):
            interrupted(waits)
    pc.send(np.ones(1), me, tag=2)
    assert pc.recv(np.empty(1), me, tag=2) == 1
    ended = in_another_thread(lambda: pc.recv(np.empty(1), me, tag=3), pc.shutdown)
    assert isinstance(ended, pc.NotInitialized)


def test_a_message_of_a_rank_to_itself_that_is_never_sent_can_be_given_up() -> None:
    testing.run(waits_for_itself, 1)


def refused() -> None:
    x, peer = np.zeros(6), 1 - pc.rank()
    rows = [
        (lambda: pc.recv(x, -1), "peer must be between 0 and 1, not -1"),
        (lambda: pc.send(x, pc.ANY_SOURCE), "ANY_SOURCE is for recv"),
        (lambda: pc.recv_async(x, pc.ANY_SOURCE), "ANY_SOURCE is for recv"),
        (lambda: pc.recv_async(None, peer), "only recv()"),
        (lambda: pc.sendrecv(x, peer, pc.ANY_SOURCE), "ANY_SOURCE is for recv"),
        (lambda: pc.sendrecv(x, peer, out=x), "overlap"),
        (lambda: pc.sendrecv(x[:4], peer, out=x[2:]), "overlap"),
        (lambda: pc.sendrecv(x, pc.rank(), peer), "itself"),
        (lambda: pc.sendrecv(x, 5), "dest must be between 0 and 1"),
        (lambda: pc.send(x, 2**70), "peer must be between 0 and 1"),
        (lambda: pc.recv(x, 2**70), "peer must be between 0 and 1"),
        (lambda: pc.recv(np.zeros(2)[::-1].view(), 7), "peer must be between"),
    ]
    for call, why in rows:
        with pytest.raises((pc.InvalidArgument, pc.Unsupported)) as caught:
            call()
        assert why in str(caught.value), (why, caught.value)
    with pytest.raises(pc.CollectiveTimeout, match="recv from any rank"):
        pc.recv(None, pc.ANY_SOURCE, timeout=0.05)
    pc.barrier()


def test_what_cannot_be_right_is_refused_and_the_group_goes_on() -> None:
    testing.run(refused, 2)


def small_lists_sent_first() -> None:
    rank = pc.rank()
    if rank > 1:
        return
    for gaps in (1, 2):
        sent = [np.full(8, rank)[::gaps] for _ in range(200)]
        pc.send(sent, 1 - rank)  # on both ranks, so it must not wait for the receive of the other rank
        got = pc.recv([np.zeros(8, int)[::gaps] for _ in sent], 1 - rank)
        assert all((x == 1 - rank).all() for x in got)


def test_a_small_list_is_sent_before_it_is_received() -> None:
    testing.run(small_lists_sent_first, 2)


def large_in_one_piece_and_in_several() -> None:
    """Above 8 MiB a receiver may store past its caches, but not into what it splits afterwards."""
    count = 3_000_001
    for call in range(3):
        whole = np.arange(count, dtype=np.float32) + call
        parts = [whole[:7].copy(), whole[7:2_000_000].copy(), whole[2_000_000:].copy()]
        if pc.rank() == 0:
            pc.send(whole, 1)
            pc.send(parts, 1)
        else:
            assert np.array_equal(pc.recv(np.zeros(count, np.float32), 0), whole)
            got = pc.recv([np.zeros_like(part) for part in parts], 0)
            assert all(np.array_equal(a, b) for a, b in zip(got, parts, strict=True))


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_large_messages_are_right_in_one_piece_and_in_several(transport: str) -> None:
    testing.run(large_in_one_piece_and_in_several, 2, env={"PYCOLLECTIVE_TRANSPORT": transport})


def lists_that_differ() -> None:
    for source in (0, pc.ANY_SOURCE):
        if pc.rank() == 0:
            pc.send([np.array([1, 2]), np.array([3, 4, 5])], 1)
            pc.send([np.array([1, 2]), np.array([3, 4, 5])], 1)
            continue
        with pytest.raises(pc.CollectiveMismatch):
            pc.recv([np.zeros(3, int), np.zeros(2, int)], source)
        got = pc.recv([np.zeros(2, int), np.zeros(3, int)], source)
        assert [x.tolist() for x in got] == [[1, 2], [3, 4, 5]]


def test_lists_of_as_many_elements_that_differ_are_a_mismatch() -> None:
    testing.run(lists_that_differ, 2)


def round_robin_for_each_tag() -> None:
    rank, size = pc.rank(), pc.size()
    if rank != 0:
        for _ in range(10):
            pc.send(np.zeros(1), 0, tag=1)
            pc.send(np.zeros(1), 0, tag=2)
        pc.send(np.zeros(1), 0, tag=3)  # sent last: when it arrives, all others have arrived
    else:
        for source in range(1, size):
            pc.recv(np.zeros(1), source, tag=3)
        seen: dict[int, list[int]] = {1: [], 2: []}
        for i in range(20 * (size - 1)):
            tag = 1 + i % 2
            seen[tag].append(pc.recv(np.zeros(1), pc.ANY_SOURCE, tag=tag, with_source=True)[1])
        for sources in seen.values():
            for begin in range(0, len(sources), size - 1):
                assert set(sources[begin : begin + size - 1]) == set(range(1, size))


def test_any_source_is_round_robin_for_each_tag() -> None:
    testing.run(round_robin_for_each_tag, 4)


def mismatched() -> None:
    if pc.rank() == 0:
        pc.send(np.zeros(3), 1)
        pc.send(np.ones(3), 1)
        return
    wrong = np.full(4, 7.0)
    with pytest.raises(pc.CollectiveMismatch, match=r"float64\[3\].*float64\[4\]"):
        pc.recv(wrong, pc.ANY_SOURCE)
    assert (wrong == 7).all()
    assert pc.recv(np.zeros(3), pc.ANY_SOURCE).tolist() == [1, 1, 1]


def test_a_message_that_does_not_fit_is_reported_and_not_delivered() -> None:
    testing.run(mismatched, 2)


def unreadable() -> None:
    fields = [(f"field number {i}", "f4") for i in range(60)]
    for source in (0, pc.ANY_SOURCE):
        if pc.rank() == 0:
            pc.send(np.full(2, 1, fields), 1)
            pc.send(np.full(2, 2, fields), 1)
            continue
        with pytest.raises(pc.Unsupported, match="does not say what it is") as kept:
            pc.recv(None, source)
        for number in (1, 2):  # both have stayed, in their order
            assert pc.recv(np.zeros(2, fields), source)["field number 3"].tolist() == [number] * 2
        del kept


def test_a_dtype_that_is_too_long_to_describe_can_be_received_where_it_is_known() -> None:
    testing.run(unreadable, 2)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "object",
        "O",
        "[('a', 'O')]",
        "no such",
        "[" * 900,
        "(1,)",
        "__import__('os')",
        "[('a', 'f4')",
        "bfloat16x",
    ],
)
def test_a_hostile_dtype_is_a_typed_error(name: str) -> None:
    with pytest.raises(pc.Unsupported):
        _dtype_called(name, 1)
