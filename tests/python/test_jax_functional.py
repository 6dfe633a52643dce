"""pycollective.jax: collectives and messages under jit and grad, against what they are by hand."""

from __future__ import annotations

import doctest
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pycollective as pc
from pycollective import testing

pytest.importorskip("jax")


def start() -> tuple[Any, Any, Any]:
    import jax
    import jax.numpy as jnp

    import pycollective.jax as pcj

    return jax, jnp, pcj


def numbers(rank: int, count: int) -> Any:
    """Small whole numbers, so that every sum is exact."""
    return np.arange(1.0, count + 1, dtype=np.float32) * (rank + 1)


# name: the call, and by hand the results of all ranks from their operands, or all gradients from theirs.
Hand = Callable[[list[Any]], list[Any]]


def cases(n: int) -> dict[str, tuple[Callable[[Any, Any], Any], Hand, Hand]]:
    def everywhere(x: list[Any]) -> list[Any]:
        return [sum(x)] * n

    def only(root: int, x: list[Any]) -> list[Any]:
        return [sum(x) if rank == root else 0 * x[0] for rank in range(n)]

    def cut(x: Any) -> list[Any]:
        return np.split(x, n)

    def exchanged(x: list[Any]) -> list[Any]:
        return [np.concatenate([cut(each)[rank] for each in x]) for rank in range(n)]

    def joined(x: list[Any]) -> list[Any]:
        return [np.concatenate(x)] * n

    def scattered(x: list[Any]) -> list[Any]:
        return cut(sum(x))

    return {
        "allreduce": (lambda f, x: f.allreduce(x), everywhere, everywhere),
        "allreduce avg": (
            lambda f, x: f.allreduce(x, "mean"),
            lambda x: [each / n for each in everywhere(x)],
            lambda g: [each / n for each in everywhere(g)],
        ),
        "reduce": (lambda f, x: f.reduce(x, root=1), lambda x: only(1, x), lambda g: [g[1]] * n),
        "broadcast": (lambda f, x: f.broadcast(x, 1), lambda x: [x[1]] * n, lambda g: only(1, g)),
        "allgather": (lambda f, x: f.allgather(x), joined, scattered),
        "reduce_scatter": (lambda f, x: f.reduce_scatter(x), scattered, joined),
        "reduce_scatter avg": (
            lambda f, x: f.reduce_scatter(x, "avg", axis=-1),
            lambda x: [each / n for each in scattered(x)],
            lambda g: [each / n for each in joined(g)],
        ),
        "alltoall": (lambda f, x: f.alltoall(x), exchanged, exchanged),
    }


def adjoints() -> None:
    jax, jnp, pcj = start()
    rank, n = pc.rank(), pc.size()
    x = [numbers(r, 2 * n) for r in range(n)]
    for name, (call, result, gradient) in cases(n).items():
        expected = result(x)
        weights = [np.arange(1.0, expected[0].size + 1, dtype=np.float32) + r for r in range(n)]

        def loss(x: Any, call: Any = call, weight: Any = weights[rank]) -> Any:
            return (call(pcj, x) ** 2 * weight).sum()

        y, g = call(pcj, x[rank]), jax.jit(jax.grad(loss))(x[rank])
        np.testing.assert_allclose(y, expected[rank], rtol=1e-6, err_msg=name)
        by_hand = gradient([2 * e * w for e, w in zip(expected, weights, strict=True)])
        np.testing.assert_allclose(g, by_hand[rank], rtol=1e-6, err_msg=name)
    second_derivatives(jax, jnp, pcj, rank, n)
    if n == 2:
        uneven_alltoall(jax, jnp, pcj, rank)
        order(jax, jnp, pcj, rank)
        messages(jax, jnp, pcj, rank)
        large(jax, jnp, pcj)


def second_derivatives(jax: Any, jnp: Any, pcj: Any, rank: int, n: int) -> None:
    def cubes(x: Any) -> Any:
        return (pcj.allreduce(x) ** 3).sum()

    hessian_row_sum = jax.jit(jax.grad(lambda x: jax.grad(cubes)(x).sum()))
    s = sum(r + 1.0 for r in range(n))
    assert hessian_row_sum(jnp.full(2, rank + 1.0)).tolist() == [6 * s * n * n] * 2


def uneven_alltoall(jax: Any, jnp: Any, pcj: Any, rank: int) -> None:
    counts, recv_counts = ([1, 3], [1, 2]) if rank == 0 else ([2, 2], [3, 2])
    x = numbers(rank, 4)

    def loss(x: Any) -> Any:
        return (pcj.alltoall(x, counts=counts, recv_counts=recv_counts) ** 2).sum()

    assert jax.jit(jax.grad(loss))(x).tolist() == (2 * x).tolist()


def order(jax: Any, jnp: Any, pcj: Any, rank: int) -> None:
    """Calls that nothing ties together, of different sizes, and one whose result nobody uses."""

    def loss(x: Any) -> Any:
        parts = [pcj.allreduce(x[:i]).sum() for i in (3, 1, 2)]
        pcj.allreduce(x[:4])
        return sum(parts)

    jax.effects_barrier()
    before = len(pc.debug.dump()["calls"])
    g = jax.jit(jax.grad(loss))(jnp.ones(5))
    assert g.tolist() == [6, 4, 2, 0, 0]
    counts = [call["count"] for call in pc.debug.dump()["calls"][before:]]
    assert counts == [3, 1, 2, 4, 2, 1, 3]


def messages(jax: Any, jnp: Any, pcj: Any, rank: int) -> None:
    """A model in two parts has the gradients of the whole."""
    x = jnp.arange(6.0).reshape(2, 3) / 6
    first, last = jnp.sin(jnp.arange(12.0)).reshape(3, 4), jnp.cos(jnp.arange(4.0))

    def whole(first: Any, last: Any) -> Any:
        return (jnp.tanh(x @ first) @ last).sum()

    expected = jax.jit(jax.grad(whole, argnums=(0, 1)))(first, last)
    if rank == 0:
        g = jax.jit(jax.grad(lambda first: pcj.send(jnp.tanh(x @ first), 1, tag=7)))(first)
        np.testing.assert_allclose(g, expected[0], rtol=1e-6)
        with pytest.raises(pc.InvalidArgument, match="tag must be between"):
            pcj.send(x, 1, tag=1 << 30)
    else:
        part = jax.grad(lambda last, like: (pcj.recv(like, 0, tag=7) @ last).sum(), argnums=(0, 1))
        g, of_like = jax.jit(part)(last, jnp.zeros((2, 4)))
        np.testing.assert_allclose(g, expected[1], rtol=1e-6)
        assert not of_like.any()
    twice = jax.grad(lambda x: jax.grad(lambda x: pcj.send(x, 1 - rank))(x) ** 2)
    with pytest.raises(pc.Unsupported, match="second derivatives"):
        jax.make_jaxpr(twice)(1.0)


def large(jax: Any, jnp: Any, pcj: Any) -> None:
    """16 MiB: JAX hands over such arrays differently."""
    x = jnp.ones(4 << 20)
    g = jax.jit(jax.grad(lambda x: (pcj.allreduce(x) ** 2).sum()))(x)
    assert float(g.min()) == float(g.max()) == 8


@pytest.mark.parametrize("n", [2, 3])
def test_results_and_gradients_are_those_by_hand(n: int) -> None:
    testing.run(adjoints, n)


def test_what_has_no_gradient_or_no_order_is_refused(world_of_one: pc.Group) -> None:
    jax, jnp, pcj = start()
    x = jnp.ones(3)
    assert pcj.allreduce(x, "max").tolist() == [1, 1, 1]
    with pytest.raises(pc.Unsupported, match="gradient is wanted, and 'max' has none"):
        jax.grad(lambda x: pcj.allreduce(x, "max").sum())(x)
    with pytest.raises(ValueError, match="Cannot `vmap` ordered"):
        jax.vmap(pcj.allreduce)(x)
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(pcj.allreduce, (x,), (x,))
    with pytest.raises(NotImplementedError, match="Effects not supported"):
        jax.grad(jax.checkpoint(lambda x: pcj.allreduce(x).sum()))(x)
    for wrong in (lambda: pcj.allgather(1.0), lambda: pcj.alltoall(x, counts=[3])):
        with pytest.raises(pc.InvalidArgument):
            wrong()


def test_a_call_is_compiled_once(world_of_one: pc.Group) -> None:
    _, jnp, pcj = start()
    from pycollective.jax.calls import Allreduce

    assert Allreduce(world_of_one, None, "sum") == Allreduce(world_of_one, None, "sum")
    assert hash(Allreduce(world_of_one, None, "sum")) == hash(Allreduce(world_of_one, None, "sum"))
    assert pcj.allreduce(jnp.ones(2, jnp.bfloat16)).dtype == jnp.bfloat16


def test_a_world_that_has_ended_is_named() -> None:
    jax, jnp, pcj = start()
    jitted = jax.jit(pcj.allreduce)
    for _ in range(2):
        pc.init()
        if jitted._cache_size():
            with pytest.raises(jax.errors.JaxRuntimeError, match="world that was shut down"):
                jax.block_until_ready(jitted(jnp.ones(2)))
            jax.clear_caches()
        assert jitted(jnp.ones(2)).tolist() == [1, 1]
        pc.shutdown()


@pytest.mark.parametrize(
    "name",
    ["allgather", "allreduce", "alltoall", "broadcast", "recv", "reduce", "reduce_scatter", "send"],
)
def test_the_example_runs(name: str) -> None:
    pcj = importlib.import_module("pycollective.jax")
    test = doctest.DocTestParser().get_doctest(getattr(pcj, name).__doc__, {}, name, None, 0)
    assert test.examples
    report: list[str] = []
    doctest.DocTestRunner().run(test, out=report.append)
    assert not report, "".join(report)
