"""`pycollective bench`: times collectives on this host, with the columns of nccl-tests.

The results are verified. Each process runs as one rank of a world: `pycollective bench -n 2`, or
`torchrun --nproc-per-node 2 -m pycollective.bench`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[Any]

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
TYPES = ("float32", "float64", "int32", "int64", "uint8", "float16")
WARM_UP = 5
PER_SIZE_BYTES = 256 << 20  # data per row of the table; FEWEST and MOST limit the iterations
FEWEST, MOST = 10, 1000


@dataclass(frozen=True)
class Operation:
    """One collective: its call, its expected result, and the formula of its bus bandwidth."""

    call: Callable[[Array], object]
    # takes (pattern, rank, size); returns None if the result is not checked
    expected: Callable[[Array, int, int], Array | None]
    bus_factor: Callable[[int], float]  # busbw = factor * bytes / time
    formula: str
    parts: int = 1  # the measured time of a call is divided by this


def weight(rank: int) -> int:
    """Return the factor by which a rank multiplies the common pattern.

    The factor is small, so that sums are exact in every type.
    """
    return 1 + rank % 2


def scaled(pattern: Array, factor: int) -> Array:
    """Return the product in the pattern's own type. Bytes wrap around, as in a sum of bytes."""
    product: Array = (pattern.astype("int64") * factor).astype(pattern.dtype)
    return product


def operations() -> dict[str, Operation]:
    """Return the operations that can be measured, by name."""
    import pycollective as pc

    def sum_of_all(pattern: Array, rank: int, size: int) -> Array:
        del rank
        return scaled(pattern, sum(weight(each) for each in range(size)))

    def sum_on_root(pattern: Array, rank: int, size: int) -> Array:
        return sum_of_all(pattern, rank, size) if rank == 0 else scaled(pattern, weight(rank))

    def of_root(pattern: Array, rank: int, size: int) -> Array:
        del rank, size
        return scaled(pattern, weight(0))

    def of_last(pattern: Array, rank: int, size: int) -> Array:
        return scaled(pattern, weight(size - 1 if rank == 0 else rank))

    def there_and_back(x: Array) -> None:  # One direction alone would measure how fast sends can be posted.
        last = pc.size() - 1
        if pc.rank() == last > 0:
            pc.send(x, 0)
            pc.recv(x, 0)
        elif pc.rank() == 0 < last:
            pc.recv(x, last)
            pc.send(x, last)

    def one(size: int) -> float:
        del size
        return 1.0

    return {
        "allreduce": Operation(
            pc.allreduce, sum_of_all, lambda n: 2 * (n - 1) / n, "2 (n - 1) / n * bytes / time"
        ),
        "broadcast": Operation(lambda x: pc.broadcast(x, root=0), of_root, one, "bytes / time"),
        "reduce": Operation(lambda x: pc.reduce(x, root=0), sum_on_root, one, "bytes / time"),
        "sendrecv": Operation(
            there_and_back,
            of_last,
            one,
            "bytes / time; time is half of the way from the last rank to rank 0 and back",
            parts=2,
        ),
        "barrier": Operation(lambda x: pc.barrier(), lambda *_: None, lambda n: 0.0, "0: it moves no data"),
    }


OPERATION_NAMES = ("allreduce", "broadcast", "reduce", "sendrecv", "barrier")


@dataclass(frozen=True)
class Row:
    """One row of the table."""

    nbytes: int
    count: int
    median_s: float
    p99_s: float
    algbw: float  # GB/s
    busbw: float
    wrong: int


def measure(operation: Operation, nbytes: int, dtype: str, iterations: int) -> Row:
    """Measure one row of the table. All ranks must call this together."""
    import numpy as np

    import pycollective as pc

    count = -(-nbytes // np.dtype(dtype).itemsize)  # rounded up to whole elements
    wrong = verify(operation, count, dtype)
    x = np.zeros(count, dtype)
    seconds = np.empty(WARM_UP + iterations)
    for i in range(len(seconds)):
        begin = time.perf_counter()
        operation.call(x)
        seconds[i] = time.perf_counter() - begin
    seconds = seconds[WARM_UP:] / operation.parts
    # All ranks report the slowest rank's figures: the root of a broadcast finishes long before the
    # leaves.
    figures = np.array([np.median(seconds), np.percentile(seconds, 99)])
    pc.allreduce(figures, "max")
    median_s, p99_s = float(figures[0]), float(figures[1])
    algbw = x.nbytes / median_s / 1e9
    return Row(
        x.nbytes,
        count,
        median_s,
        p99_s,
        algbw,
        algbw * operation.bus_factor(pc.size()),
        wrong,
    )


def verify(operation: Operation, count: int, dtype: str) -> int:
    """Return the number of wrong elements, summed over all ranks.

    The values are whole numbers, so that the correct result is exact.
    """
    import numpy as np

    import pycollective as pc

    pattern = (np.arange(count) % 5 + 1).astype(dtype)
    x = scaled(pattern, weight(pc.rank()))
    operation.call(x)
    expected = operation.expected(pattern, pc.rank(), pc.size())
    wrong: NDArray[np.int64] = np.array(
        [0 if expected is None else np.count_nonzero(x != expected)], np.int64
    )
    pc.allreduce(wrong)
    return int(wrong[0])


def iterations_for(nbytes: int) -> int:
    """Return the number of iterations for a size: equal on all ranks, and fewer for large sizes."""
    return min(MOST, max(FEWEST, PER_SIZE_BYTES // max(1, nbytes)))


def number_of_bytes(text: str) -> int:
    """Parse a size: `64K` is 65536."""
    unit = text[-1:].upper() if text[-1:].isalpha() else ""
    number = text[: len(text) - len(unit)]
    if unit not in UNITS or not (number.isascii() and number.isdigit()):  # int() would accept a sign
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 8, 64K, 16M or 1G")
    return int(number) * UNITS[unit]


def iterations(text: str) -> int:
    """Parse a number of iterations. 0 means that the number depends on the size."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError("must be at least 0")
    return value


def sizes(text: str) -> list[int]:
    """Parse a list of sizes: `8,64K` is [8, 65536]."""
    return [number_of_bytes(word) for word in text.split(",")]


def names(text: str, known: Collection[str] = OPERATION_NAMES) -> list[str]:
    """Parse a list of operation names, and refuse unknown ones."""
    words = text.split(",")
    unknown = [word for word in words if word not in known]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"no such operation: {' '.join(unknown)}; there are {' '.join(known)}"
        )
    return words


def add_arguments(parser: argparse.ArgumentParser, known: Collection[str] = OPERATION_NAMES) -> None:
    """Add the options of `pycollective bench`.

    `known` lists the operations that `--ops` accepts.
    """
    parser.add_argument(
        "--sizes",
        type=sizes,
        default=sizes("8,64K,1M,16M"),
        help="bytes, rounded up to whole elements: 8,64K,1M,16M",
    )
    parser.add_argument(
        "--ops", type=lambda text: names(text, known), default=["allreduce"], help=",".join(known)
    )
    parser.add_argument("--dtype", choices=TYPES, default="float32")
    parser.add_argument("--iters", type=iterations, default=0, help="per size (default: by size)")
    parser.add_argument("--explain", action="store_true", help="say what the columns mean")


def words(options: argparse.Namespace) -> list[str]:
    """Return the command-line words that yield the same options."""
    listed = [
        f"--sizes={','.join(map(str, options.sizes))}",
        f"--ops={','.join(options.ops)}",
        f"--dtype={options.dtype}",
    ]
    return [*listed, f"--iters={options.iters}", *(["--explain"] if options.explain else [])]


HEADER = (
    f"{'size':>12}{'count':>12}{'type':>10}{'time':>12}{'p99':>12}{'algbw':>10}{'busbw':>10}{'#wrong':>8}"
)
UNITS_LINE = f"{'(B)':>12}{'':>12}{'':>10}{'(us)':>12}{'(us)':>12}{'(GB/s)':>10}{'(GB/s)':>10}{'':>8}"


def line(row: Row, dtype: str) -> str:
    """Format a row."""
    return (
        f"{row.nbytes:>12}{row.count:>12}{dtype:>10}{row.median_s * 1e6:>12.1f}{row.p99_s * 1e6:>12.1f}"
        f"{row.algbw:>10.3f}{row.busbw:>10.3f}{row.wrong:>8}"
    )


def main() -> int:
    """Run one rank of the benchmark. Returns 1 if any result was wrong."""
    parser = argparse.ArgumentParser(prog="python -m pycollective.bench", description=__doc__)
    add_arguments(parser)
    options = parser.parse_args()
    import pycollective as pc

    pc.init()
    wrong = 0
    table = operations()
    for name in options.ops:
        report(f"# {name}, {pc.size()} ranks")
        if options.explain:
            report(
                "# time: median over the iterations, p99 likewise; each the slowest rank's. algbw = bytes / time"
            )
            report(
                f"# busbw = {table[name].formula}, with n = {pc.size()}: comparable between operations and world sizes"
            )
        report(HEADER + "\n" + UNITS_LINE)
        for nbytes in options.sizes if name != "barrier" else [0]:
            row = measure(table[name], nbytes, options.dtype, options.iters or iterations_for(nbytes))
            wrong += row.wrong
            report(line(row, options.dtype))
    pc.shutdown()
    return 1 if wrong else 0


def report(text: str) -> None:
    """Print the text on rank 0 only."""
    import pycollective as pc

    if pc.rank() == 0:
        print(text, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
