"""Arrays in memory that the ranks of a host share."""

import contextlib
import gc
import os
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

import pycollective as pc
from pycollective import heap, testing


def used() -> int:
    gc.collect()
    return heap.usage().used_nbytes


def arrays_are_ordinary() -> None:
    x = pc.zeros((3, 5), "int16")
    assert x.shape == (3, 5)
    assert x.dtype == np.int16
    assert x.flags.c_contiguous
    assert x.flags.writeable
    assert not x.any()
    x[1, 2] = 7
    assert x.sum() == 7
    assert pc.empty(0).shape == (0,)
    assert pc.empty((), "float64").shape == ()
    assert pc.empty_like(x).dtype == np.int16
    assert pc.empty(2, [("a", "i4"), ("b", "f8")]).dtype.names == ("a", "b")


@pytest.mark.parametrize("ranks", [1, 2])
def test_they_are_ordinary_arrays_with_and_without_neighbours(ranks: int) -> None:
    testing.run(arrays_are_ordinary, ranks)


def test_before_init_memory_is_ordinary() -> None:
    arrays_are_ordinary()
    assert heap.usage() == (0, 0)


def memory_comes_back() -> None:
    before = used()
    x = pc.empty(1 << 20, "float32")
    view = x[100:200]
    assert used() >= before + (4 << 20)
    del x
    assert used() >= before + (4 << 20), "a view keeps it"
    del view
    assert used() == before
    for _ in range(200):
        pc.empty(1 << 20, "float32")
    assert heap.usage().reserved_nbytes <= 70 << 20


def test_memory_is_given_back_with_the_last_view_and_used_again() -> None:
    testing.run(memory_comes_back, 2)


def collectives(count: int) -> None:
    rank, size = pc.rank(), pc.size()
    for in_heap in (True, rank == 0, rank != 0):
        make: Callable[[int], npt.NDArray[np.float64]] = pc.empty if in_heap else np.empty
        x = make(count)
        x[:] = np.arange(count) + rank
        pc.allreduce(x)
        assert (x == np.arange(count) * size + sum(range(size))).all()
        y = make(count * size)
        x[:] = rank
        pc.allgather(x, out=y)
        x[:] = -1
        assert (y.reshape(size, count) == np.arange(size)[:, None]).all()
        z = make(count * size)
        pc.alltoall(y, out=z)
        assert (z == rank).all()
        y[:] = rank + 1
        work = pc.allreduce_async(y)
        work.wait()
        assert (y == sum(range(size + 1))).all()


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("count", [5, 40_000, 1_500_000])
def test_collectives_on_them_are_right_with_ordinary_arrays_beside_them(ranks: int, count: int) -> None:
    testing.run(collectives, ranks, count)


def beyond_shutdown() -> None:
    x = pc.zeros(1 << 20)
    pc.allreduce(x)
    pc.shutdown()
    x += 3
    assert (x == 3).all()
    pc.init()


def test_an_array_outlives_its_world() -> None:
    testing.run(beyond_shutdown, 1)
    testing.run(outlives, 2, init=False)


def outlives() -> None:
    pc.init()
    x = pc.zeros(1 << 20)
    pc.allreduce(x)
    pc.shutdown()
    x += 3
    assert (x == 3).all()


def tensors() -> None:
    torch = pytest.importorskip("torch")
    t = pc.zeros((4, 1000), torch.bfloat16)
    assert t.dtype == torch.bfloat16
    t += pc.rank() + 1
    pc.allreduce(t)
    assert (t == 3).all()
    big = pc.empty_like(torch.zeros(3_000_000))
    big.fill_(pc.rank())
    pc.allreduce(big)
    assert (big == 1).all()
    assert pc.empty(0, torch.float32).shape == (0,)


def test_a_torch_dtype_gives_a_tensor() -> None:
    pytest.importorskip("torch")
    testing.run(tensors, 2)


@pytest.mark.parametrize("bad", [object, [("a", object)]])
def test_dtypes_with_objects_are_refused(bad: object) -> None:
    with pytest.raises(pc.InvalidArgument, match="holds Python objects"):
        pc.empty(3, bad)


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(pc.InvalidArgument, match="negative"):
        pc.zeros((3, -1))


def made_inside(count: int) -> None:
    rank, size = pc.rank(), pc.size()
    before = used()
    outside = np.ones(count)
    assert used() == before
    with pc.heap_arrays():
        x = np.arange(count, dtype=np.float64)
        zeros = np.zeros(count)
        grown = np.ones(4)
        grown.resize(count)
        inside = used()
        y = x * 2 + 1  # and what NumPy makes on the way
    assert inside >= before + 24 * count
    assert not zeros.any()
    assert grown[:4].all()
    assert not grown[4:].any()
    after = used()
    outside = np.concatenate([x, y])
    assert used() == after, "the block has ended"
    x += rank
    pc.allreduce(x)
    assert (x == np.arange(count) * size + sum(range(size))).all()
    assert pc.allreduce(y) is y
    assert (y == (np.arange(count) * 2 + 1) * size).all()
    grown[:] = 7
    grown.resize(3, refcheck=False)
    assert (grown == 7).all()
    view = x[1:3]
    del outside, x, y, zeros, grown
    assert used() >= before + 8 * count, "a view keeps it"
    del view
    assert used() == before


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("count", [100, 1_500_000])
def test_numpys_own_arrays_in_the_heap(ranks: int, count: int) -> None:
    testing.run(made_inside, ranks, count, timeout_s=60)


def blocks_end() -> None:
    import threading

    before = used()
    kept = []
    with contextlib.suppress(KeyError), pc.heap_arrays():
        kept.append(np.ones(1000))
        raise KeyError
    with pc.heap_arrays(), pc.heap_arrays():
        kept.append(np.ones(1000))
    with pc.heap_arrays():
        with pc.heap_arrays():
            pass
        kept.append(np.ones(1000))
        thread = threading.Thread(target=lambda: kept.append(np.ones(100_000)))
        thread.start()
        thread.join()
    assert before + 24_000 <= used() < before + 100_000, "other threads have their own"
    kept.append(np.ones(100_000))
    assert used() < before + 100_000
    kept.clear()
    assert used() == before


def test_the_block_is_of_its_thread_and_ends_with_errors_too() -> None:
    testing.run(blocks_end, 2, timeout_s=60)


def numpy_arrays_outlive() -> None:
    pc.init()
    with pc.heap_arrays():
        x = np.zeros(1 << 20)
        pc.allreduce(x)
        pc.shutdown()
        later = np.ones(100_000)
    x += 3
    assert (x == 3).all()
    del x
    gc.collect()
    assert later.all()
    pc.init()
    with pc.heap_arrays():
        y = np.ones(1 << 20)
    pc.allreduce(y)
    assert (y == pc.size()).all()
    del later
    pc.shutdown()


def test_numpys_arrays_outlive_their_world() -> None:
    testing.run(numpy_arrays_outlive, 2, init=False, timeout_s=60)


def forked_inside() -> None:
    with pc.heap_arrays():
        x = np.full(100_000, 5.0)
        child = os.fork()
        if child == 0:
            status = 1
            with contextlib.suppress(BaseException):
                y = np.full(100_000, 6.0)
                y.resize(200_000, refcheck=False)
                own = np.concatenate([y, x])
                x.resize(200_000, refcheck=False)
                wrong = (own[:100_000] != 6).any() or (own[200_000:] != 5).any() or (x[:100_000] != 5).any()
                del x, y, own
                status = 2 if wrong else 0
            os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        other = np.full(100_000, 7.0)
    assert (x == 5).all()
    assert (other == 7).all()


def test_a_forked_child_takes_nothing_of_the_heap() -> None:
    testing.run(forked_inside, 2, timeout_s=60)


def test_without_a_heap_numpy_has_its_ordinary_memory() -> None:
    with pc.heap_arrays():
        assert np.ones(1000).all()
    assert heap.usage() == (0, 0)


def too_much() -> None:
    with pc.heap_arrays():
        with pytest.raises(MemoryError):
            np.empty(1 << 58, np.uint8)
        assert np.ones(3).all()


def test_too_much_is_a_memory_error() -> None:
    testing.run(too_much, 2, timeout_s=60)
