"""Arrays of CuPy in place, with out= and as new ones, in the order of a stream of CuPy's."""

from __future__ import annotations

from program_context import cannot_run, proved

import pycollective as pc

try:
    import cupy
except ImportError as error:
    cannot_run(str(error))
if not cupy.cuda.is_available():
    cannot_run("CuPy sees no GPU")

pc.init()
rank, size = pc.rank(), pc.size()
total = sum(range(size))
stream = cupy.cuda.Stream(non_blocking=True)
with stream:
    for dtype in ("float32", "float64", "int32", "uint8"):
        x = cupy.arange(1000).astype(dtype) % 50 + rank
        kept, y = x.copy(), cupy.zeros_like(x)
        assert pc.allreduce(x, out=y) is y
        wanted = (cupy.arange(1000) % 50 * size + total).astype(dtype)
        assert bool((y == wanted).all()), (dtype, y)
        assert bool((x == kept).all()), "the array that is read was changed"
        assert pc.allreduce(x) is x
        assert bool((x == wanted).all()), (dtype, x)
    x = cupy.full((2, 3), float(rank))
    gathered = pc.allgather(x)
    assert isinstance(gathered, cupy.ndarray)
    assert cupy.asnumpy(gathered).tolist() == [[float(each)] * 3 for each in range(size) for _ in range(2)]
    pc.broadcast(x, root=size - 1)
    assert bool((x == size - 1).all()), x
    columns = cupy.zeros((4, 6))[:, ::2]  # a view with gaps
    columns += rank
    pc.allreduce(columns)
    assert bool((columns == total).all()), columns
    parts = [cupy.full(5, 1.0 + rank), cupy.full((2, 2), 2.0 * rank)]
    pc.allreduce(parts)
    assert [float(each.max()) for each in parts] == [total + size, 2.0 * total]
pc.shutdown()
proved("four dtypes in place and out of place, allgather, broadcast, a view with gaps, a list")
