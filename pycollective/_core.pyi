# Types of the C++ core for mypy. tests/python/project/test_import.py compares them with the module.
import types
from collections.abc import Callable, Generator, Sequence
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar, final, overload

import numpy.typing as npt
from typing_extensions import Buffer, Self

from pycollective.errors import CollectiveError

ANY_SOURCE: int  # as `peer`: receive from the rank that sends first

class SupportsDLPack(Protocol):
    def __dlpack__(self) -> Any: ...  # noqa: ANN401  a PyCapsule
    def __dlpack_device__(self) -> tuple[Any, Any]: ...

# NumPy arrays, torch tensors, bytearray, memoryview, array.array, ...
Array: TypeAlias = Buffer | SupportsDLPack
Number: TypeAlias = complex  # type checkers accept float, int and bool too
# A number, a vector (list of numbers), or a container of arrays that are sent together.
ListOfArrays: TypeAlias = Number | list[Any] | tuple[Any, ...] | dict[Any, Any]
A = TypeVar("A", bound=Array | ListOfArrays)
R = TypeVar("R", covariant=True)
Counts: TypeAlias = Sequence[int] | Literal["auto"]
OpName: TypeAlias = Literal[
    "sum",
    "prod",
    "min",
    "max",
    "avg",
    "band",
    "bor",
    "bxor",
    "land",
    "lor",
    "lxor",
    "minloc",
    "maxloc",
    "add",
    "mean",
]
Op: TypeAlias = OpName | Scaled

# ---- by scripts/stubs
def allreduce(
    x: A,
    op: Op = "sum",
    *,
    out: A | None = None,
    timeout: float | None = None,
    reproducible: Literal["shape", "world"] | None = None,
) -> A: ...
def allreduce_async(
    x: A,
    op: Op = "sum",
    *,
    out: A | None = None,
    timeout: float | None = None,
    reproducible: Literal["shape", "world"] | None = None,
) -> Work[A]: ...
def plan_allreduce(
    x: A,
    op: Op = "sum",
    *,
    out: A | None = None,
    timeout: float | None = None,
    reproducible: Literal["shape", "world"] | None = None,
) -> PlannedCall[A]: ...
def broadcast(x: A, root: int = 0, *, timeout: float | None = None) -> A: ...
def broadcast_async(x: A, root: int = 0, *, timeout: float | None = None) -> Work[A]: ...
def reduce(
    x: A,
    op: Op = "sum",
    *,
    root: int = 0,
    timeout: float | None = None,
    reproducible: Literal["shape", "world"] | None = None,
) -> A: ...
def reduce_async(
    x: A,
    op: Op = "sum",
    *,
    root: int = 0,
    timeout: float | None = None,
    reproducible: Literal["shape", "world"] | None = None,
) -> Work[A]: ...
def allgather(
    x: A, *, out: A | None = None, counts: Counts | None = None, axis: int = 0, timeout: float | None = None
) -> A: ...
def allgather_async(
    x: A, *, out: A | None = None, counts: Counts | None = None, axis: int = 0, timeout: float | None = None
) -> Work[A]: ...
def reduce_scatter(
    x: A,
    op: Op = "sum",
    *,
    out: A | None = None,
    counts: Counts | None = None,
    axis: int = 0,
    timeout: float | None = None,
    reproducible: Literal["shape", "world"] | None = None,
) -> A: ...
def reduce_scatter_async(
    x: A,
    op: Op = "sum",
    *,
    out: A | None = None,
    counts: Counts | None = None,
    axis: int = 0,
    timeout: float | None = None,
    reproducible: Literal["shape", "world"] | None = None,
) -> Work[A]: ...
def alltoall(
    x: A,
    *,
    out: A | None = None,
    counts: Sequence[int] | None = None,
    recv_counts: Sequence[int] | None = None,
    axis: int = 0,
    timeout: float | None = None,
) -> A: ...
def alltoall_async(
    x: A,
    *,
    out: A | None = None,
    counts: Sequence[int] | None = None,
    recv_counts: Sequence[int] | None = None,
    axis: int = 0,
    timeout: float | None = None,
) -> Work[A]: ...
def gather(
    x: A,
    root: int = 0,
    *,
    out: A | None = None,
    counts: Counts | None = None,
    axis: int = 0,
    timeout: float | None = None,
) -> A | None: ...
def gather_async(
    x: A,
    root: int = 0,
    *,
    out: A | None = None,
    counts: Counts | None = None,
    axis: int = 0,
    timeout: float | None = None,
) -> Work[A | None]: ...
def scatter(
    x: A | None,
    root: int = 0,
    *,
    out: A | None = None,
    counts: Counts | None = None,
    axis: int = 0,
    timeout: float | None = None,
) -> A: ...
def scatter_async(
    x: A | None,
    root: int = 0,
    *,
    out: A | None = None,
    counts: Counts | None = None,
    axis: int = 0,
    timeout: float | None = None,
) -> Work[A]: ...
def scan(
    x: A,
    op: Op = "sum",
    *,
    out: A | None = None,
    timeout: float | None = None,
    reproducible: Literal["shape", "world"] | None = None,
) -> A: ...
def scan_async(
    x: A,
    op: Op = "sum",
    *,
    out: A | None = None,
    timeout: float | None = None,
    reproducible: Literal["shape", "world"] | None = None,
) -> Work[A]: ...
def exscan(
    x: A,
    op: Op = "sum",
    *,
    out: A | None = None,
    timeout: float | None = None,
    reproducible: Literal["shape", "world"] | None = None,
) -> A: ...
def exscan_async(
    x: A,
    op: Op = "sum",
    *,
    out: A | None = None,
    timeout: float | None = None,
    reproducible: Literal["shape", "world"] | None = None,
) -> Work[A]: ...
def send(x: A, peer: int, *, tag: int = 0, timeout: float | None = None) -> A: ...
def send_async(x: A, peer: int, *, tag: int = 0, timeout: float | None = None) -> Work[A]: ...
@overload
def recv(
    x: A, peer: int, *, tag: int = 0, timeout: float | None = None, with_source: Literal[False] = False
) -> A: ...
@overload
def recv(
    x: A, peer: int, *, tag: int = 0, timeout: float | None = None, with_source: Literal[True]
) -> tuple[A, int]: ...
@overload
def recv(
    x: None, peer: int, *, tag: int = 0, timeout: float | None = None, with_source: Literal[False] = False
) -> npt.NDArray[Any]: ...
@overload
def recv(
    x: None, peer: int, *, tag: int = 0, timeout: float | None = None, with_source: Literal[True]
) -> tuple[npt.NDArray[Any], int]: ...
def recv_async(x: A, peer: int, *, tag: int = 0, timeout: float | None = None) -> Work[A]: ...
def sendrecv(
    x: A,
    dest: int,
    source: int | None = None,
    *,
    out: A | None = None,
    tag: int = 0,
    timeout: float | None = None,
) -> A: ...
def barrier(*, timeout: float | None = None) -> None: ...
def barrier_async(*, timeout: float | None = None) -> Work[None]: ...

# ---- end of what scripts/stubs writes
def resync(*, timeout: float | None = None) -> None: ...
def broadcast_object(
    obj: object,
    root: int = 0,
    *,
    allow_pickle: bool = False,
    max_nbytes: int | None = None,
    timeout: float | None = None,
) -> Any: ...  # noqa: ANN401
def allgather_object(
    obj: object,
    *,
    allow_pickle: bool = False,
    max_nbytes: int | None = None,
    timeout: float | None = None,
) -> list[Any]: ...
def gather_object(
    obj: object,
    root: int = 0,
    *,
    allow_pickle: bool = False,
    max_nbytes: int | None = None,
    timeout: float | None = None,
) -> list[Any] | None: ...
def scatter_object(
    objs: list[Any] | tuple[Any, ...] | None,
    root: int = 0,
    *,
    allow_pickle: bool = False,
    max_nbytes: int | None = None,
    timeout: float | None = None,
) -> Any: ...  # noqa: ANN401
def send_object(
    obj: object,
    peer: int,
    *,
    tag: int = 0,
    allow_pickle: bool = False,
    max_nbytes: int | None = None,
    timeout: float | None = None,
) -> None: ...
def recv_object(
    peer: int,
    *,
    tag: int = 0,
    allow_pickle: bool = False,
    max_nbytes: int | None = None,
    timeout: float | None = None,
) -> Any: ...  # noqa: ANN401
def group(ranks: Sequence[int], *, timeout: float | None = None) -> Group | None: ...
def world() -> Group: ...
def scaled(op: Literal["sum", "add"], factor: float) -> Scaled: ...

@final
class Scaled:
    @property
    def op(self) -> str: ...
    @property
    def factor(self) -> float: ...

@final
class Work(Generic[R]):
    def done(self) -> bool: ...
    def wait(self, timeout: float | None = None, *, host: bool = False) -> R: ...
    def result(self) -> R: ...
    def exception(self, timeout: float | None = None) -> CollectiveError | None: ...
    def info(self) -> dict[str, Any]: ...
    def __await__(self) -> Generator[Any, None, R]: ...
    def _wait_only(self) -> None: ...
    def _is_queued(self) -> bool: ...
    def _watch(self, fd: int, /) -> bool: ...
    def _unwatch(self, fd: int, /) -> None: ...

@final
class PlannedCall(Generic[R]):
    def __call__(self) -> R: ...

@final
class Group:
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def ranks(self) -> tuple[int, ...]: ...
    @property
    def _hosts(self) -> tuple[int, ...]: ...
    @property
    def _is_strict(self) -> bool: ...
    def _join_gpus(self, device: int, /) -> None: ...
    @property
    def local_rank(self) -> int: ...
    @property
    def local_size(self) -> int: ...
    # ---- by scripts/stubs
    def allreduce(
        self,
        x: A,
        op: Op = "sum",
        *,
        out: A | None = None,
        timeout: float | None = None,
        reproducible: Literal["shape", "world"] | None = None,
    ) -> A: ...
    def allreduce_async(
        self,
        x: A,
        op: Op = "sum",
        *,
        out: A | None = None,
        timeout: float | None = None,
        reproducible: Literal["shape", "world"] | None = None,
    ) -> Work[A]: ...
    def plan_allreduce(
        self,
        x: A,
        op: Op = "sum",
        *,
        out: A | None = None,
        timeout: float | None = None,
        reproducible: Literal["shape", "world"] | None = None,
    ) -> PlannedCall[A]: ...
    def broadcast(self, x: A, root: int = 0, *, timeout: float | None = None) -> A: ...
    def broadcast_async(self, x: A, root: int = 0, *, timeout: float | None = None) -> Work[A]: ...
    def reduce(
        self,
        x: A,
        op: Op = "sum",
        *,
        root: int = 0,
        timeout: float | None = None,
        reproducible: Literal["shape", "world"] | None = None,
    ) -> A: ...
    def reduce_async(
        self,
        x: A,
        op: Op = "sum",
        *,
        root: int = 0,
        timeout: float | None = None,
        reproducible: Literal["shape", "world"] | None = None,
    ) -> Work[A]: ...
    def allgather(
        self,
        x: A,
        *,
        out: A | None = None,
        counts: Counts | None = None,
        axis: int = 0,
        timeout: float | None = None,
    ) -> A: ...
    def allgather_async(
        self,
        x: A,
        *,
        out: A | None = None,
        counts: Counts | None = None,
        axis: int = 0,
        timeout: float | None = None,
    ) -> Work[A]: ...
    def reduce_scatter(
        self,
        x: A,
        op: Op = "sum",
        *,
        out: A | None = None,
        counts: Counts | None = None,
        axis: int = 0,
        timeout: float | None = None,
        reproducible: Literal["shape", "world"] | None = None,
    ) -> A: ...
    def reduce_scatter_async(
        self,
        x: A,
        op: Op = "sum",
        *,
        out: A | None = None,
        counts: Counts | None = None,
        axis: int = 0,
        timeout: float | None = None,
        reproducible: Literal["shape", "world"] | None = None,
    ) -> Work[A]: ...
    def alltoall(
        self,
        x: A,
        *,
        out: A | None = None,
        counts: Sequence[int] | None = None,
        recv_counts: Sequence[int] | None = None,
        axis: int = 0,
        timeout: float | None = None,
    ) -> A: ...
    def alltoall_async(
        self,
        x: A,
        *,
        out: A | None = None,
        counts: Sequence[int] | None = None,
        recv_counts: Sequence[int] | None = None,
        axis: int = 0,
        timeout: float | None = None,
    ) -> Work[A]: ...
    def gather(
        self,
        x: A,
        root: int = 0,
        *,
        out: A | None = None,
        counts: Counts | None = None,
        axis: int = 0,
        timeout: float | None = None,
    ) -> A | None: ...
    def gather_async(
        self,
        x: A,
        root: int = 0,
        *,
        out: A | None = None,
        counts: Counts | None = None,
        axis: int = 0,
        timeout: float | None = None,
    ) -> Work[A | None]: ...
    def scatter(
        self,
        x: A | None,
        root: int = 0,
        *,
        out: A | None = None,
        counts: Counts | None = None,
        axis: int = 0,
        timeout: float | None = None,
    ) -> A: ...
    def scatter_async(
        self,
        x: A | None,
        root: int = 0,
        *,
        out: A | None = None,
        counts: Counts | None = None,
        axis: int = 0,
        timeout: float | None = None,
    ) -> Work[A]: ...
    def scan(
        self,
        x: A,
        op: Op = "sum",
        *,
        out: A | None = None,
        timeout: float | None = None,
        reproducible: Literal["shape", "world"] | None = None,
    ) -> A: ...
    def scan_async(
        self,
        x: A,
        op: Op = "sum",
        *,
        out: A | None = None,
        timeout: float | None = None,
        reproducible: Literal["shape", "world"] | None = None,
    ) -> Work[A]: ...
    def exscan(
        self,
        x: A,
        op: Op = "sum",
        *,
        out: A | None = None,
        timeout: float | None = None,
        reproducible: Literal["shape", "world"] | None = None,
    ) -> A: ...
    def exscan_async(
        self,
        x: A,
        op: Op = "sum",
        *,
        out: A | None = None,
        timeout: float | None = None,
        reproducible: Literal["shape", "world"] | None = None,
    ) -> Work[A]: ...
    def send(self, x: A, peer: int, *, tag: int = 0, timeout: float | None = None) -> A: ...
    def send_async(self, x: A, peer: int, *, tag: int = 0, timeout: float | None = None) -> Work[A]: ...
    @overload
    def recv(
        self,
        x: A,
        peer: int,
        *,
        tag: int = 0,
        timeout: float | None = None,
        with_source: Literal[False] = False,
    ) -> A: ...
    @overload
    def recv(
        self, x: A, peer: int, *, tag: int = 0, timeout: float | None = None, with_source: Literal[True]
    ) -> tuple[A, int]: ...
    @overload
    def recv(
        self,
        x: None,
        peer: int,
        *,
        tag: int = 0,
        timeout: float | None = None,
        with_source: Literal[False] = False,
    ) -> npt.NDArray[Any]: ...
    @overload
    def recv(
        self, x: None, peer: int, *, tag: int = 0, timeout: float | None = None, with_source: Literal[True]
    ) -> tuple[npt.NDArray[Any], int]: ...
    def recv_async(self, x: A, peer: int, *, tag: int = 0, timeout: float | None = None) -> Work[A]: ...
    def sendrecv(
        self,
        x: A,
        dest: int,
        source: int | None = None,
        *,
        out: A | None = None,
        tag: int = 0,
        timeout: float | None = None,
    ) -> A: ...
    def barrier(self, *, timeout: float | None = None) -> None: ...
    def barrier_async(self, *, timeout: float | None = None) -> Work[None]: ...
    # ---- end of what scripts/stubs writes
    def _find(
        self, peer: int, tag: int, timeout: float | None, /
    ) -> tuple[int, str, tuple[int, ...], object]: ...
    def _receive(self, x: A, token: object, bundle: int | None, /) -> A: ...
    def _send(self, x: A, peer: int, tag: int, timeout: float | None, bundle: int, /) -> A: ...
    def _recv(self, x: A, peer: int, tag: int, timeout: float | None, bundle: int, /) -> A: ...
    def resync(self, *, timeout: float | None = None) -> None: ...
    def broadcast_object(
        self,
        obj: object,
        root: int = 0,
        *,
        allow_pickle: bool = False,
        max_nbytes: int | None = None,
        timeout: float | None = None,
    ) -> Any: ...  # noqa: ANN401
    def allgather_object(
        self,
        obj: object,
        *,
        allow_pickle: bool = False,
        max_nbytes: int | None = None,
        timeout: float | None = None,
    ) -> list[Any]: ...
    def gather_object(
        self,
        obj: object,
        root: int = 0,
        *,
        allow_pickle: bool = False,
        max_nbytes: int | None = None,
        timeout: float | None = None,
    ) -> list[Any] | None: ...
    def scatter_object(
        self,
        objs: list[Any] | tuple[Any, ...] | None,
        root: int = 0,
        *,
        allow_pickle: bool = False,
        max_nbytes: int | None = None,
        timeout: float | None = None,
    ) -> Any: ...  # noqa: ANN401
    def send_object(
        self,
        obj: object,
        peer: int,
        *,
        tag: int = 0,
        allow_pickle: bool = False,
        max_nbytes: int | None = None,
        timeout: float | None = None,
    ) -> None: ...
    def recv_object(
        self,
        peer: int,
        *,
        tag: int = 0,
        allow_pickle: bool = False,
        max_nbytes: int | None = None,
        timeout: float | None = None,
    ) -> Any: ...  # noqa: ANN401
    def group(self, ranks: Sequence[int], *, timeout: float | None = None) -> Group | None: ...
    def split(
        self, color: int | str | None, key: int = 0, *, timeout: float | None = None
    ) -> Group | None: ...
    def _can_split_gpus(self) -> bool: ...
    def _split_gpus(self, child: Group | None, timeout: float | None, /) -> None: ...
    def _make(self, id: int, world_ranks: Sequence[int], /) -> Group: ...
    def _reserve_group_ids(self, count: int, /) -> int: ...
    def close(self) -> None: ...
    def _quit(self) -> None: ...
    def _run(
        self,
        collective: str,
        x: object,
        out: object,
        op: object,
        root: int,
        counts: Sequence[int] | None,
        recv_counts: Sequence[int] | None,
        timeout: float | None,
        fixed_order: bool,
        /,
    ) -> None: ...
    def _begin(
        self,
        collective: str,
        x: object,
        out: object,
        op: object,
        root: int,
        counts: Sequence[int] | None,
        recv_counts: Sequence[int] | None,
        timeout: float | None,
        fixed_order: bool,
        /,
    ) -> Work[None]: ...
    def _run_list(
        self,
        collective: str,
        blocks: list[Any],
        writes: bool,
        op: object,
        root: int,
        bundle: int,
        timeout: float | None,
        fixed_order: bool,
        /,
    ) -> None: ...
    def _begin_list(
        self,
        collective: str,
        blocks: list[Any],
        writes: bool,
        op: object,
        root: int,
        bundle: int,
        timeout: float | None,
        fixed_order: bool,
        result: A,
        /,
    ) -> Work[A]: ...
    def _plan_lists(
        self,
        calls: list[tuple[str, list[Any], bool, object, int, int, float | None, bool]],
        x: A,
        words: str,
        /,
    ) -> PlannedCall[A]: ...
    def _plan_staged(self, call: Callable[[], R], x: object, /) -> PlannedCall[R]: ...
    def explain(
        self,
        collective: str,
        *,
        nbytes: int = 0,
        root: int = 0,
        rank: int = -1,
        model: str = "",
        device: str = "cpu",
    ) -> str: ...

class _HeapBlock(Buffer): ...

def _heap_block(nbytes: int) -> _HeapBlock | None: ...
def _heap_handler() -> object: ...
def _set_numpy_handler(handler: object) -> object: ...
def _heap_usage() -> tuple[int, int] | None: ...
def _world_facts() -> (
    tuple[int, int, int, int, tuple[str, ...], tuple[str, ...], tuple[int, ...], str, int] | None
): ...
def _memory_room() -> int | None: ...
def _driver_facts() -> dict[str, Any]: ...
def _nccl_facts(wheel_folders: list[str]) -> dict[str, Any]: ...
def _kernel_targets() -> list[str]: ...

class Runtime:
    def __init__(
        self,
        rank: int,
        size: int,
        *,
        store_addresses: list[str] = ...,
        host_store: list[str] | None = None,
        key: bytes,
        job: bytes,
        key_source: str = "",
        encrypts: bool = False,
        epoch: int = 0,
        listen: list[str] = ...,
        local_rank: int = 0,
        local_size: int = 0,
        timeout_s: float | None = None,
        init_timeout_s: float | None = None,
        transport: str | None = None,
        tune: str | None = None,
        tuning: str | None = None,
    ) -> None: ...
    @property
    def world(self) -> Group: ...
    def store(self) -> Store: ...
    def shutdown(self, *, timeout_s: float | None = None) -> None: ...
    def close(self) -> None: ...

class Store:
    def set(self, key: str, value: bytes, timeout_s: float | None) -> None: ...
    def get(self, key: str, timeout_s: float | None) -> bytes: ...
    def pop(self, key: str, timeout_s: float | None) -> bytes: ...
    def add(self, key: str, delta: int, timeout_s: float | None) -> int: ...
    def wait(self, key: str, timeout_s: float | None) -> None: ...
    def try_get(self, key: str, timeout_s: float | None) -> bytes | None: ...
    def check(self, key: str, timeout_s: float | None) -> bool: ...
    def erase(self, key: str, timeout_s: float | None) -> bool: ...
    def keys(self, prefix: str, timeout_s: float | None) -> list[str]: ...
    def compare_set(self, key: str, expected: bytes, desired: bytes, timeout_s: float | None) -> bytes: ...
    def append(self, key: str, value: bytes, timeout_s: float | None) -> None: ...

class StoreServer:
    def __init__(
        self, addresses: list[str], *, key: bytes, job: bytes, key_source: str = "", encrypts: bool = False
    ) -> None: ...
    @property
    def addresses(self) -> list[str]: ...
    def close(self) -> None: ...
    def _close_in_child(self) -> None: ...
    def _report_absent(self, ranks: Sequence[int], why: str) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None: ...

def interfaces() -> list[tuple[str, str, int]]: ...
def environment_markdown() -> str: ...
def dtypes_markdown() -> str: ...
def reduce_target() -> str: ...
def _set_world(group: Group | None) -> None: ...
def _begin_alone(what: str) -> None: ...
def _end_alone() -> None: ...
def _after_fork() -> None: ...
def _combine(out: object, a: object, b: object, op: object, calls: int = 1) -> None: ...
def _check(function: str, argument: str, x: object, op: object) -> None: ...
def _time_calls(group: Group, x: Array, count: int) -> float: ...
def _limits(ranks: int) -> dict[str, int]: ...
def _machine_facts() -> list[tuple[str, str]]: ...
def _usual_profile_path() -> str: ...
def _profile_text(settings: list[tuple[int, str, str]], comment: str) -> str: ...
def _read_profile(path: str) -> list[tuple[int, str, str]]: ...
def _plan_catalog() -> list[dict[str, str]]: ...
def _plan_models() -> dict[str, str]: ...
def _plan_supports(collective: str, algorithm: str, size: int, root: int, split: int, even: bool) -> bool: ...
def _plan_steps(collective: str, algorithm: str, size: int, root: int, split: int, rank: int) -> str: ...
def _plan_drawing(collective: str, algorithm: str, size: int, root: int, split: int) -> str: ...
def _plan_check(
    collective: str, algorithm: str, size: int, root: int, split: int, even: bool
) -> dict[str, str]: ...
def _plan_simulate(
    collective: str, algorithm: str, size: int, root: int, split: int, nbytes: int, model: str
) -> dict[str, Any]: ...
def _plan_explain(
    collective: str, nbytes: int, root: int, size: int, hosts: int, rank: int, model: str
) -> str: ...
def _flight_record() -> str: ...
def _fail_at_exit() -> None: ...
def _seconds_since_end_signal() -> float | None: ...
def _program_position(timeout_s: float) -> str | None: ...
