"""What test_gpu_arrays.py checks of JAX's arrays on GPUs. JAX is real and on the CPU.

FAKE: its memory counts as a GPU's.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fake_gpus import Array, Gpu
from gpu_checking import DRIVERS, raises, ranks, run_checks

import pycollective as pc
from pycollective import _core
from pycollective.arrays import jax_on_gpu

CALLS = threading.local()  # number of GPU arrays that this rank's calls were made of


class AdoptedBlock(jax_on_gpu.Block):
    """Registers its memory with the fake driver, as if JAX had allocated it there."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        facts = super().__cuda_array_interface__
        if facts["data"][0]:
            DRIVERS[0].control("adopt", ctypes.c_void_p(facts["data"][0]), ctypes.c_size_t(self.nbytes))
        CALLS.made = getattr(CALLS, "made", 0) + 1
        return facts


jax_on_gpu.Block = AdoptedBlock  # type: ignore[misc]
jax_on_gpu.JaxOnGpu._lies_on_gpu = lambda self, x: True  # type: ignore[method-assign]


def _went_by_gpu() -> bool:
    made, CALLS.made = getattr(CALLS, "made", 0), 0
    return made > 0


@ranks(3)
def a_jax_array_has_the_results_of_the_cpu_and_stays_as_it_was(group: _core.Group, gpu: Gpu) -> None:
    n = group.size
    for dtype in (np.float32, np.int16, jnp.bfloat16):
        op = "sum" if dtype == np.float32 else "max"  # by NCCL, and by what NCCL does not have
        values = (np.arange(6 * n).reshape(2 * n, 3) % 7 + group.rank).astype(dtype)
        for name, keywords in {
            "allreduce": {"op": op},
            "broadcast": {"root": 1},
            "reduce": {"root": 1, "op": op},
            "scan": {"op": op},
            "exscan": {"op": op},
            "allgather": {},
            "reduce_scatter": {"op": op},
            "alltoall": {},
            "gather": {"root": 1},
        }.items():
            x = jnp.asarray(values)
            expected = getattr(group, name)(values.copy(), **keywords)
            result = getattr(group, name)(x, **keywords)
            assert _went_by_gpu(), name
            assert np.array_equal(np.asarray(x), values), name
            if name == "exscan" and group.rank == 0:
                continue  # undefined
            assert (result is None) == (expected is None), name
            if result is not None and not (name == "reduce" and group.rank != 1):
                assert isinstance(result, jax.Array), name
                assert result.dtype == dtype, name
                assert np.array_equal(np.asarray(result), expected), (name, result, expected)


@ranks(2)
def jax_arrays_in_lists_in_parts_and_by_other_axes(group: _core.Group, gpu: Gpu) -> None:
    tree = {"a": jnp.full((2, 3), group.rank + 1.0), "b": [jnp.arange(4) * (group.rank + 1)]}
    result = group.allreduce(tree)
    assert np.asarray(result["a"]).tolist() == [[3.0] * 3] * 2
    assert np.asarray(result["b"][0]).tolist() == [0, 3, 6, 9]
    part = jnp.full((3, 1 + group.rank), group.rank)
    assert np.asarray(group.allgather(part, counts=[1, 2], axis=1)).tolist() == [[0, 1, 1]] * 3
    empty = group.allreduce(jnp.zeros((0, 3)))
    assert empty.shape == (0, 3)
    assert np.asarray(group.allreduce(jnp.asarray(2.5))).item() == 5


@ranks(2)
def jax_arrays_travel_between_ranks(group: _core.Group, gpu: Gpu) -> None:
    x = jnp.arange(5.0) + group.rank
    other = 1 - group.rank
    came = group.sendrecv(x, other)
    assert np.asarray(came).tolist() == [other + i for i in range(5)]
    if group.rank == 0:
        group.send(x, 1)
    else:
        assert np.asarray(group.recv(x, 0)).tolist() == [0, 1, 2, 3, 4]
    whole = jnp.arange(6) if group.rank == 0 else None
    assert np.asarray(group.scatter(whole)).tolist() == [3 * group.rank + i for i in range(3)]


@ranks(2)
def a_jax_array_goes_into_another_librarys(group: _core.Group, gpu: Gpu) -> None:
    x = jnp.full(4, group.rank + 1, np.float32)
    out = Array(gpu, np.zeros(4, np.float32), stream=None)
    assert group.allreduce(x, out=out) is out
    assert out.host.tolist() == [3] * 4
    out.stream = 1
    raises(pc.InvalidArgument, "different streams", lambda: group.allreduce(x, out=out))
    raises(pc.InvalidArgument, "cannot be written", lambda: group.allreduce(x, out=jnp.zeros(4)))


@ranks(2)
def what_writes_parts_of_jax_arrays_does_so_on_the_host(group: _core.Group, gpu: Gpu) -> None:
    for compression in (None, "f16"):
        reducer = pc.GradientReducer(
            {"a": jnp.zeros((2, 3)), "b": jnp.zeros(4)}, group=group, compression=compression
        )
        reduced = reducer.reduce({"b": jnp.full(4, group.rank + 1.0)})
        assert np.asarray(reduced["a"]).tolist() == [[0] * 3] * 2
        assert np.asarray(reduced["b"]).tolist() == [1.5] * 4
    leaves = jnp.full((2, 3), group.rank + 1.0)
    assert np.asarray(group.allreduce(leaves, reproducible="world")).tolist() == [6] * 3


@ranks(2)
def beside_arrays_of_the_host_jax_arrays_go_there_too(group: _core.Group, gpu: Gpu) -> None:
    mixed = [jnp.full(2, group.rank + 1.0, np.float32), np.full(3, group.rank + 1.0, np.float32)]
    result = group.allreduce(mixed)
    assert np.asarray(result[0]).tolist() == [3] * 2
    assert result[1].tolist() == [3] * 3
    out = np.zeros(2, np.float32)
    assert group.allreduce(mixed[0], out=out) is out
    assert out.tolist() == [3] * 2
    whole = np.zeros(4, np.float32)
    assert group.allgather(mixed[0], out=whole) is whole
    assert whole.tolist() == [1, 1, 2, 2]
    group.sendrecv(mixed[0], 1 - group.rank, out=out)
    assert out.tolist() == [2 - group.rank] * 2


@ranks(2)
def jax_arrays_of_64_bits_stay_so_and_a_trace_elsewhere_is_none_of_theirs(
    group: _core.Group, gpu: Gpu
) -> None:
    with jax.enable_x64(True):
        x = jnp.arange(2.0) + group.rank
    assert x.dtype == np.float64
    assert np.asarray(group.allgather(x)).tolist() == [0, 1, 1, 2]
    assert group.allgather(x).dtype == np.float64
    y = jnp.ones(2)
    assert np.asarray(jax.jit(lambda z: group.allreduce(y) + z)(1.0)).tolist() == [3, 3]
    group.barrier()


@ranks(2)
def an_array_with_a_sharding_of_its_own_keeps_that(group: _core.Group, gpu: Gpu) -> None:
    (device,) = jnp.zeros(1).devices()
    mesh = jax.sharding.Mesh(np.array([device]), ("here",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("here", None))
    x = jax.device_put(jnp.full((2, 3), group.rank), rows)
    whole = group.allgather(x)
    assert np.asarray(whole)[:, 0].tolist() == [0, 0, 1, 1]
    assert group.allreduce(x).sharding == rows
    assert np.asarray(group.allreduce([x])[0]).tolist() == [[1] * 3] * 2


@ranks(2)
def a_result_costs_jax_one_compiled_call(group: _core.Group, gpu: Gpu) -> None:
    x = jnp.arange(6.0).reshape(2, 3) + group.rank
    group.allreduce(x)

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("JAX takes the host a tenth of a millisecond for this")

    with pytest.MonkeyPatch.context() as patch:
        for each in (jnp, "zeros"), (jnp, "array"), (jnp, "asarray"), (jax, "device_put"):
            patch.setattr(*each, refuse)
        group.barrier()  # both refuse now
        results = [group.allreduce(x) for _ in range(3)]
        group.barrier()
    for each in results:
        assert np.asarray(each).tolist() == [[1, 3, 5], [7, 9, 11]]


if __name__ == "__main__":
    run_checks()
