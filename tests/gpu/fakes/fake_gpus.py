"""GPUs that are FAKES: tests/cpp/fakes loaded in this process, and arrays that claim to be there.

The fake driver's memory is the host's, so a test reads a "GPU array" through NumPy. Ranks are
threads of one process, each with a runtime of its own, because the fake NCCL knows the ranks of one
process.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pycollective import _core

ROOT = Path(__file__).resolve().parents[3]
FAKES = ROOT / "tests" / "cpp" / "fakes"
CHECKS = ROOT / "tests" / "gpu" / "checks"  # programs, which import their modules from here
MODULES = (str(CHECKS), str(CHECKS.with_name("fakes")), str(ROOT / "tests" / "support"))
PYTHONPATH = os.pathsep.join([*MODULES, *filter(None, [os.environ.get("PYTHONPATH")])])
LIBRARIES = ROOT / "build" / "fakes"  # compiled libraries, shared by every run of the tests
DEADLINE_S = 60


def build(source: Path, to: Path, *flags: str) -> Path:
    """Copies the library. Compiles it first if no run of these tests has compiled the same."""
    command = [
        "g++",
        "-std=c++20",
        "-O0",
        "-shared",
        "-fPIC",
        "-pthread",
        f"-I{ROOT}/csrc",
        f"-I{ROOT}/tests/cpp",
    ]
    command += [*flags, str(source)]
    LIBRARIES.mkdir(parents=True, exist_ok=True)
    how = " ".join([*command, compiler_version()])
    name = f"{source.stem}-{hashlib.sha256(how.encode()).hexdigest()[:16]}"
    with (LIBRARIES / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        library = LIBRARIES / f"{name}-{digest_of_sources()}.so"
        if not library.exists():
            for of_other_sources in LIBRARIES.glob(f"{name}-*"):
                of_other_sources.unlink()
            unfinished = library.with_suffix(".unfinished")
            subprocess.run([*command, "-o", unfinished], check=True, timeout=100)
            unfinished.rename(library)
        shutil.copy(library, to)
    return to


@functools.cache
def compiler_version() -> str:
    command = ["g++", "-dumpfullversion"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=10).stdout


@functools.cache
def digest_of_sources() -> str:
    """Returns the digest of the fakes, and of every file that a fake may include."""
    state = hashlib.sha256()
    headers = [path for folder in ("csrc", "tests/cpp") for path in (ROOT / folder).rglob("*.h")]
    for path in sorted({*headers, *FAKES.rglob("*.cc")}):
        state.update(f"{path}\n".encode() + path.read_bytes())
    return state.hexdigest()[:16]


def build_cuda(folder: Path) -> Path:
    return build(FAKES / "cuda" / "fake_cuda.cc", folder / "libcuda.so.1")


def build_nccl(folder: Path) -> Path:
    flags = ("-DFAKE_NCCL_VERSION=22809", "-Wl,-soname,libnccl.so.2")
    return build(FAKES / "nccl" / "fake_nccl.cc", folder / "libnccl.so.2", *flags)


class Hangs(Exception):
    """Raised if a rank has not ended in time."""


class Dies(Exception):
    """Raised by a rank that ends without a message."""


class Driver:
    """The fake driver of this process, which the core opens too, with the fake NCCL."""

    def __init__(self, gpus: int) -> None:
        self.library = ctypes.CDLL(os.environ["PYCOLLECTIVE_CUDA_LIB"])
        self.nccl = ctypes.CDLL(os.environ["PYCOLLECTIVE_NCCL_LIB"])
        self.nccl.fake_nccl_run_in_streams(self.library.fake_cuda_enqueue)
        self.nccl.fake_nccl_record.restype = ctypes.c_char_p
        self.call("cuInit", 0)
        self.control("set_device_count", gpus)

    def call(self, name: str, *arguments: Any) -> None:
        code = self.ask(name, *arguments)
        assert code == 0, (name, code)

    def ask(self, name: str, *arguments: Any) -> int:
        """Returns the driver's result code."""
        pointer = ctypes.c_void_p()
        found = self.library.cuGetProcAddress_v2(
            name.encode(), ctypes.byref(pointer), 12000, ctypes.c_ulonglong(0), None
        )
        assert found == 0, name
        return int(ctypes.CFUNCTYPE(ctypes.c_int)(pointer.value or 0)(*arguments))

    def control(self, name: str, *arguments: Any) -> int:
        """Calls one of FAKE_CUDA_CONTROLS."""
        return int(getattr(self.library, f"fake_cuda_{name}")(*arguments))

    def record(self) -> list[str]:
        """Returns the requests to NCCL, a line for each communicator.

        One thread at a time may call it.
        """
        answer: bytes = self.nccl.fake_nccl_record()
        return answer.decode().splitlines()


class Gpu:
    """One GPU, for the thread that makes this object."""

    def __init__(self, driver: Driver, ordinal: int) -> None:
        self.driver, self.ordinal = driver, ordinal
        context = ctypes.c_void_p()
        driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ordinal)
        driver.call("cuCtxSetCurrent", context)

    def stream(self) -> int:
        stream = ctypes.c_void_p()
        self.driver.call("cuStreamCreate", ctypes.byref(stream), 1)
        assert stream.value is not None
        return stream.value

    def memory(self, nbytes: int) -> int:
        at = ctypes.c_ulonglong()
        self.driver.call("cuMemAlloc", ctypes.byref(at), ctypes.c_size_t(nbytes))
        return at.value

    def hold(self, stream: int | None) -> None:
        """Suspends this stream."""
        self.driver.control("hold_stream", ctypes.c_void_p(stream))

    def release(self, stream: int | None) -> None:
        self.driver.control("release_stream", ctypes.c_void_p(stream))

    def drain(self, stream: int | None) -> None:
        """Waits until nothing is queued on this stream."""
        self.driver.control("drain", ctypes.c_void_p(stream))

    def copy(self, stream: int | None, to: Array, source: Array) -> None:
        self.driver.call(
            "cuMemcpyDtoDAsync",
            ctypes.c_ulonglong(to.at),
            ctypes.c_ulonglong(source.at),
            ctypes.c_size_t(to.host.nbytes),
            ctypes.c_void_p(stream),
        )

    def fill(self, stream: int, x: Array, value: float, *, held: bool = False) -> None:
        """Queues a producer that sets x to this value on the stream, which may be held first."""
        if held:
            self.hold(stream)
        self.copy(stream, x, Array(self, np.full(x.shape, value), dtype=x.dtype))

    def begin_capture(self, stream: int) -> None:
        """Captures what this thread queues there from now on into a graph."""
        self.driver.control("begin_capture", ctypes.c_void_p(stream))

    def end_capture(self, stream: int) -> None:
        assert self.driver.control("end_capture", ctypes.c_void_p(stream)) >= 0, "the capture was invalidated"

    def replay(self, stream: int) -> None:
        self.driver.control("replay", ctypes.c_void_p(stream))

    def queued(self, stream: int | None) -> int:
        return self.driver.control("queued", ctypes.c_void_p(stream))


ADOPTED: list[object] = []  # what the fake driver treats as a GPU's memory until the end


class Array:
    """An array on a GPU as CuPy shows it: CUDA's array interface, version 3. FAKE."""

    def __init__(
        self, gpu: Gpu, values: npt.ArrayLike, stream: int | None = 1, dtype: npt.DTypeLike = None
    ) -> None:
        filled = np.asarray(values, dtype)
        self.stream: int | None = stream
        self.shape, self.dtype = filled.shape, filled.dtype
        self.version, self.read_only = 3, False
        self.strides: tuple[int, ...] | None = None
        self.at = gpu.memory(max(filled.nbytes, 1))
        buffer = (ctypes.c_char * filled.nbytes).from_address(self.at)
        self.host = np.frombuffer(buffer, filled.dtype).reshape(filled.shape)  # the same memory
        self.host[...] = filled

    def move_to(self, gpu: Gpu, memory: npt.NDArray[Any]) -> Array:
        """Moves it into these bytes of the host, which become an allocation of their own."""
        nbytes, self.at = self.host.nbytes, memory.ctypes.data
        gpu.driver.control("adopt", ctypes.c_void_p(self.at), ctypes.c_size_t(nbytes))
        ADOPTED.append(memory)
        moved = memory[:nbytes].view(self.host.dtype).reshape(self.host.shape)
        moved[...] = self.host
        self.host = moved
        return self

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.at if self.host.size else 0, self.read_only),
            "strides": self.strides,
            "stream": self.stream,
            "version": self.version,
        }


def on_ranks(
    size: int, body: Callable[[_core.Group, Gpu], None], driver: Driver, timeout_s: float = 30
) -> None:
    """Run `body(group, gpu)` in a world of threads, each with its own GPU.

    Raises what any of them raised.
    """
    key, job = bytes(range(32)), os.urandom(16)
    with _core.StoreServer(["127.0.0.1:0"], key=key, job=job) as server:
        failed: list[BaseException] = []

        def rank_is(rank: int) -> None:
            try:
                gpu = Gpu(driver, rank)
                runtime = _core.Runtime(
                    rank, size, store_addresses=server.addresses, key=key, job=job, timeout_s=timeout_s
                )
                try:
                    body(runtime.world, gpu)
                    runtime.shutdown()
                finally:
                    runtime.close()
            except Dies:
                pass
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=rank_is, args=(rank,), daemon=True) for rank in range(size)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + DEADLINE_S
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0))
        if any(thread.is_alive() for thread in threads):
            raise failed[0] if failed else Hangs
    if failed:
        raise failed[0]
