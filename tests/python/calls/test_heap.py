"""Arrays in memory that the ranks of a host share."""

import contextlib
import contextvars
import ctypes
import gc
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pytest

import pycollective as pc
from pycollective import _core, testing
from pycollective.runtime import heap, lifetime


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
def test_they_are_ordinary_arrays_with_and_without_local_peers(ranks: int) -> None:
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
        y = x * 2 + 1  # and NumPy's intermediate arrays
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
        elsewhere = contextvars.Context()  # some versions of Python start a thread with a copy of the context
        thread = threading.Thread(target=elsewhere.run, args=(lambda: kept.append(np.ones(100_000)),))
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


def forked_outside() -> None:
    x = pc.empty(100_000)
    x[:] = 5
    kept = lifetime._runtime  # any program may keep it, in the child too
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # locks of the parent's threads would be held for ever
        status = 1
        with contextlib.suppress(BaseException):
            y = pc.zeros(100_000)
            with pc.heap_arrays():
                z = np.full(100_000, 6.0)
            info = pc.info()
            ordinary = heap.usage() == (0, 0) and info.heap_used_nbytes == info.heap_reserved_nbytes == 0
            status = 0 if ordinary and not y.any() and (z == 6).all() and (x == 5).all() else 2
            del x, y, z
        os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert kept is lifetime._runtime
    after = pc.zeros(100_000)
    assert (x == 5).all()
    assert not after.any()


def test_a_forked_child_has_no_heap() -> None:
    testing.run(forked_outside, 2, timeout_s=60)


def in_a_child(write: Callable[[], object]) -> None:
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        status = 1
        with contextlib.suppress(BaseException):
            write()
            status = 0
        os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


def written_by_children(shuts_down: bool) -> None:
    pc.init()
    x = pc.zeros(50_000)
    x[:] = np.arange(50_000)
    with pc.heap_arrays():
        y = np.arange(1_000.0)
        many = [np.full(size, 3) for size in (10, 5_000, 3_000_000)]
    group = pc.world().split(0)
    if shuts_down:
        pc.shutdown()

    def write() -> None:
        assert x[-1] == 49_999
        assert y[-1] == 999
        x[:] -= x.mean()
        in_a_child(lambda: x.fill(8))
        assert abs(x.mean()) < 1e-6
        y.sort()
        y[::2] = -1
        for each in many:
            each += 1

    for _ in range(2):
        in_a_child(write)
    assert (x == np.arange(50_000)).all()
    assert (y == np.arange(1_000)).all()
    assert all((each == 3).all() for each in many)
    x += 1
    if not shuts_down:
        assert group is not None
        assert group.allreduce(x)[7] == 8 * pc.size()
        pc.shutdown()


@pytest.mark.parametrize("shuts_down", [False, True])
def test_what_a_forked_child_writes_stays_with_it(shuts_down: bool) -> None:
    testing.run(written_by_children, 2, shuts_down, init=False, timeout_s=60)


class Handler(ctypes.Structure):
    """Declared in numpy/ndarraytypes.h."""

    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("ctx", ctypes.c_void_p),
        ("malloc", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)),
        ("calloc", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)),
        ("realloc", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)),
        ("free", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)),
    )


def inside(capsule: object) -> Handler:
    """Returns the handler that NumPy calls. ctypes calls it without the GIL."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return Handler.from_address(pointer(capsule, b"mem_handler"))


def grows() -> None:
    before = used()
    capsule = _core._heap_handler()
    numpy = inside(capsule)
    memory = numpy.malloc(numpy.ctx, 4096)
    ctypes.memset(memory, 7, 4096)
    moves = 0
    for nbytes in range(8192, 4096 * 1000, 4096):
        again = numpy.realloc(numpy.ctx, memory, nbytes)
        ctypes.memset(again + nbytes - 4096, 7, 4096)
        moves += again != memory
        memory = again
    assert moves < 30, "each of them copies all"
    assert ctypes.string_at(memory, nbytes) == b"\7" * nbytes
    numpy.free(numpy.ctx, memory, nbytes)
    assert used() == before


def test_what_grows_little_by_little_is_not_copied_each_time() -> None:
    testing.run(grows, 2, timeout_s=60)


def unknown_memory() -> None:
    capsule = _core._heap_handler()
    numpy = inside(capsule)
    foreign = ctypes.create_string_buffer(b"abc")
    numpy.free(numpy.ctx, ctypes.addressof(foreign), 4)
    assert numpy.realloc(numpy.ctx, ctypes.addressof(foreign), 8) is None
    assert numpy.calloc(numpy.ctx, 1 << 40, 1 << 40) is None
    assert numpy.malloc(numpy.ctx, 1 << 62) is None
    assert foreign.value == b"abc"


def test_what_is_not_ours_is_let_alone() -> None:
    testing.run(unknown_memory, 2, timeout_s=60)


def without_the_gil() -> None:
    before = used()
    with pc.heap_arrays():
        contexts = [contextvars.copy_context() for _ in range(2)]
    text = " ".join(map(str, range(20_000)))

    def read() -> None:
        for _ in range(100):
            assert (np.fromstring(text, sep=" ") == np.arange(20_000)).all()

    capsule = _core._heap_handler()
    numpy = inside(capsule)

    def take() -> None:
        for _ in range(10_000):
            memory = numpy.realloc(numpy.ctx, numpy.malloc(numpy.ctx, 64), 256)
            numpy.free(numpy.ctx, memory, 256)

    with ThreadPoolExecutor(4) as threads:
        readers = [threads.submit(context.run, read) for context in contexts]
        for done in [*readers, *(threads.submit(take) for _ in range(2))]:
            done.result(timeout=100)
    assert used() == before


def test_numpy_may_take_memory_without_the_gil() -> None:
    testing.run(without_the_gil, 2, timeout_s=120)


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
