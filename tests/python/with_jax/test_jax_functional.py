"""pycollective.jax: collectives and messages under jit and grad, against explicit results."""

from __future__ import annotations

import doctest
import functools
import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from named_checks import Checks, assert_passed

import pycollective as pc

pytest.importorskip("jax")

CHECKS = Checks()
Arrays = list[Any]  # one for each rank


def start() -> tuple[Any, Any, Any]:
    import jax
    import jax.numpy as jnp

    import pycollective.jax as pcj

    return jax, jnp, pcj


def numbers(rank: int, *shape: int) -> Any:
    """Returns small whole numbers, so that every sum is exact."""
    return np.arange(1.0, np.prod(shape) + 1, dtype=np.float32).reshape(shape) * (rank + 1)


class Case(NamedTuple):
    """A call in a group, and by hand: all ranks' results from their operands, and the gradients."""

    call: Callable[[Any, Any, Any], Any]
    results: Callable[[Arrays], Arrays]
    gradients: Callable[[Arrays], Arrays]


def reductions(n: int) -> dict[str, Case]:
    def everywhere(x: Arrays) -> Arrays:
        return [sum(x)] * n

    def average(x: Arrays) -> Arrays:
        return [sum(x) / n] * n

    def only(root: int, x: Arrays) -> Arrays:
        return [sum(x) if rank == root else 0 * x[0] for rank in range(n)]

    return {
        "allreduce": Case(lambda f, x, g: f.allreduce(x, group=g), everywhere, everywhere),
        "allreduce_avg": Case(lambda f, x, g: f.allreduce(x, "mean", group=g), average, average),
        "reduce": Case(
            lambda f, x, g: f.reduce(x, "add", root=1, group=g), lambda x: only(1, x), lambda g: [g[1]] * n
        ),
        "reduce_avg": Case(
            lambda f, x, g: f.reduce(x, "avg", root=1, group=g),
            lambda x: [each / n for each in only(1, x)],
            lambda g: [g[1] / n] * n,
        ),
        "broadcast": Case(
            lambda f, x, g: f.broadcast(x, 1, group=g), lambda x: [x[1]] * n, lambda g: only(1, g)
        ),
    }


def parts(n: int) -> dict[str, Case]:
    def joined(axis: int, x: Arrays) -> Arrays:
        return [np.concatenate(x, axis)] * n

    def scattered(axis: int, x: Arrays) -> Arrays:
        return np.split(sum(x), n, axis)

    def exchanged(axis: int, x: Arrays) -> Arrays:
        return [np.concatenate([np.split(each, n, axis)[rank] for each in x], axis) for rank in range(n)]

    return {
        "allgather": Case(
            lambda f, x, g: f.allgather(x, group=g), lambda x: joined(0, x), lambda g: scattered(0, g)
        ),
        "reduce_scatter": Case(
            lambda f, x, g: f.reduce_scatter(x, axis=-1, group=g),
            lambda x: scattered(-1, x),
            lambda g: joined(-1, g),
        ),
        "reduce_scatter_avg": Case(
            lambda f, x, g: f.reduce_scatter(x, "avg", group=g),
            lambda x: [each / n for each in scattered(0, x)],
            lambda g: [each / n for each in joined(0, g)],
        ),
        "alltoall": Case(
            lambda f, x, g: f.alltoall(x, axis=1, group=g),
            lambda x: exchanged(1, x),
            lambda g: exchanged(1, g),
        ),
    }


class Trial:
    """A case on this rank of a group. Each of its promises is a check."""

    def __init__(self, name: str, group: Any = None) -> None:
        members = group or pc.world()
        rank, n = members.rank, members.size
        call, results, gradients = (reductions(n) | parts(n))[name]
        self.jax, _, pcj = start()
        self.call = lambda x: call(pcj, x, group)
        operands = [numbers(r, n, 2 * n) for r in range(n)]
        self.operand, self.expected = operands[rank], results(operands)[rank]
        weights = [numbers(r + 1, *self.expected.shape) for r in range(n)]  # the gradients of the results
        self.weight, self.expected_gradient = weights[rank], gradients(weights)[rank]

    def weighted(self, x: Any) -> Any:
        return (self.call(x) * self.weight).sum()

    def result(self) -> None:
        close(self.call(self.operand), self.expected)

    def result_in_jit(self) -> None:
        close(self.jax.jit(self.call)(self.operand), self.expected)

    def gradient_in_jit(self) -> None:
        close(self.jax.jit(self.jax.grad(self.weighted))(self.operand), self.expected_gradient)

    def second_derivative_in_jit(self) -> None:
        """The adjoint is linear in the gradient. Its own adjoint is the call."""

        def of_gradient(weight: Any) -> Any:
            back = self.jax.grad(lambda x: (self.call(x) * weight).sum())(self.operand)
            return (back * self.operand).sum()

        close(self.jax.jit(self.jax.grad(of_gradient))(self.weight), self.expected)


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def in_the_world(name: str, promise: Callable[[Trial], None]) -> None:
    promise(Trial(name))


def in_a_part(name: str, promise: Callable[[Trial], None]) -> None:
    """Runs it in a group with another order than the world, without a rank if there are three."""
    if group := pc.group([pc.size() - 1, 0]):
        promise(Trial(name, group))


for _name in reductions(2) | parts(2):
    for _where, _promise, _sizes in (
        (in_the_world, Trial.result, (2,)),
        (in_the_world, Trial.result_in_jit, (3,)),
        (in_the_world, Trial.gradient_in_jit, (2, 3)),
        (in_the_world, Trial.second_derivative_in_jit, (2,)),
        (in_a_part, Trial.result_in_jit, (2, 3)),
        (in_a_part, Trial.gradient_in_jit, (2, 3)),
    ):
        _check = functools.partial(_where, _name, _promise)
        CHECKS.add(f"{_name}: {_promise.__name__} {_where.__name__}", _check, *_sizes)


@CHECKS.on(2, 3)
def second_derivatives_are_those_of_the_sum_of_all_losses() -> None:
    jax, jnp, pcj = start()

    def cubes(x: Any) -> Any:
        return (pcj.allreduce(x) ** 3).sum()

    n = pc.size()
    hessian_row_sum = jax.jit(jax.grad(lambda x: jax.grad(cubes)(x).sum()))
    s = sum(r + 1.0 for r in range(n))
    assert hessian_row_sum(jnp.full(2, pc.rank() + 1.0)).tolist() == [6 * s * n * n] * 2


@CHECKS.on(2)
def alltoall_of_uneven_parts() -> None:
    jax, _, pcj = start()
    counts, recv_counts = ([1, 3], [1, 2]) if pc.rank() == 0 else ([2, 2], [3, 2])
    x = numbers(pc.rank(), 4)

    def loss(x: Any) -> tuple[Any, Any]:
        y = pcj.alltoall(x, counts=counts, recv_counts=recv_counts)
        return (y**2).sum(), y

    g, y = jax.jit(jax.grad(loss, has_aux=True))(x)
    assert y.tolist() == ([1, 2, 4] if pc.rank() == 0 else [2, 3, 4, 6, 8])
    assert g.tolist() == (2 * x).tolist()


OTHER_OPS = {"max": [2, 4], "min": [1, 2], "prod": [2, 8]}  # and the results of (1, 2) and (2, 4)


def _other_op(op: Any) -> None:
    """Checks results without a gradient, also beside one with a gradient."""
    jax, _, pcj = start()

    def loss(x: Any) -> tuple[Any, Any]:
        stopped = jax.lax.stop_gradient(x)
        everywhere, at_root = pcj.allreduce(stopped, op), pcj.reduce(stopped, op, root=1)
        return (everywhere * x).sum(), (everywhere, at_root, pcj.reduce_scatter(stopped, op))

    g, (everywhere, at_root, scattered) = jax.jit(jax.grad(loss, has_aux=True))(numbers(pc.rank(), 2))
    assert g.tolist() == everywhere.tolist() == OTHER_OPS[op]
    assert at_root.tolist() == (OTHER_OPS[op] if pc.rank() == 1 else [0, 0])
    assert scattered.tolist() == [OTHER_OPS[op][pc.rank()]]


for _op in OTHER_OPS:
    CHECKS.add(f"{_op}_without_gradient", functools.partial(_other_op, _op), 2)


@CHECKS.on(2)
def calls_keep_their_order_and_none_is_left_out() -> None:
    """Makes independent calls of different sizes, and one with an unused result."""
    jax, jnp, pcj = start()

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


@CHECKS.on(2)
def calls_in_a_scan_have_gradients() -> None:
    jax, jnp, pcj = start()

    def powers(x: Any) -> Any:
        total, _ = jax.lax.scan(lambda c, each: (c * pcj.allreduce(each), None), 1.0, x)
        return total

    assert jax.jit(jax.grad(powers))(jnp.array([1.0, 2.0, 3.0])).tolist() == [48, 24, 16]


@CHECKS.on(2)
def calls_in_a_while_loop_and_in_a_branch() -> None:
    jax, jnp, pcj = start()
    doubled = jax.jit(lambda x: jax.lax.while_loop(lambda c: c < 10, pcj.allreduce, x))
    assert doubled(jnp.ones(())).tolist() == 16
    branch = jax.jit(jax.grad(lambda x: jax.lax.cond(x > 0, pcj.allreduce, lambda x: 3 * x, x)))
    assert branch(1.0).tolist() == 2


@CHECKS.on(2)
def a_model_cut_in_two_has_the_gradients_of_the_whole() -> None:
    jax, jnp, pcj = start()
    x = jnp.arange(6.0).reshape(2, 3) / 6
    first, last = jnp.sin(jnp.arange(12.0)).reshape(3, 4), jnp.cos(jnp.arange(4.0))

    def whole(first: Any, last: Any) -> Any:
        return (jnp.tanh(x @ first) @ last).sum()

    expected = jax.jit(jax.grad(whole, argnums=(0, 1)))(first, last)
    if pc.rank() == 0:
        close(jax.jit(jax.grad(lambda first: pcj.send(jnp.tanh(x @ first), 1, tag=7)))(first), expected[0])
    else:
        part = jax.grad(lambda last, like: (pcj.recv(like, 0, tag=7) @ last).sum(), argnums=(0, 1))
        g, of_like = jax.jit(part)(last, jnp.zeros((2, 4)))
        close(g, expected[1])
        assert not of_like.any()


@CHECKS.on(2, 3)
def messages_count_ranks_in_their_group() -> None:
    jax, jnp, pcj = start()
    pair = pc.group([pc.size() - 1, 0])
    if pair is not None and pair.rank == 0:
        assert jax.jit(jax.grad(lambda x: pcj.send(x, 1, group=pair)))(jnp.ones(2)).tolist() == [7, 7]
    elif pair is not None:
        seventh = jax.grad(lambda like: (7 * pcj.recv(like, 0, group=pair)).sum())
        jax.block_until_ready(jax.jit(seventh)(jnp.zeros(2)))


@CHECKS.on(2)
def second_derivatives_of_messages_are_refused() -> None:
    jax, _, pcj = start()
    twice = jax.grad(lambda x: jax.grad(lambda x: pcj.send(x, 1 - pc.rank()))(x) ** 2)
    with pytest.raises(pc.Unsupported, match="second derivatives"):
        jax.make_jaxpr(twice)(1.0)


@CHECKS.on(2)
def large_arrays_travel() -> None:
    """16 MiB: JAX passes such arrays differently."""
    jax, jnp, pcj = start()
    x = jnp.ones(4 << 20)
    g = jax.jit(jax.grad(lambda x: (pcj.allreduce(x) ** 2).sum()))(x)
    assert float(g.min()) == float(g.max()) == 8


@CHECKS.on(2)
def an_error_comes_out_and_the_next_call_is_right() -> None:
    jax, jnp, pcj = start()
    with pytest.raises(jax.errors.JaxRuntimeError, match="CollectiveMismatch"):
        jax.block_until_ready(jax.jit(pcj.allreduce)(jnp.ones(3 + pc.rank())))
    assert pcj.allreduce(jnp.ones(3)).tolist() == [2, 2, 2]


@pytest.mark.parametrize(("size", "name"), CHECKS.rows())
def test_on_every_rank(size: int, name: str) -> None:
    assert_passed(__name__, size, name)


def _loss(f: Any) -> Callable[[Any], Any]:
    return lambda x: (f.allreduce(x) ** 2).sum()


# Functions called with (jax, pycollective.jax, an array), and the error of JAX.
REFUSED_BY_JAX: dict[str, tuple[Callable[[Any, Any, Any], Any], type[Exception], str]] = {
    "vmap": (lambda jax, f, x: jax.vmap(f.allreduce)(x), ValueError, "Cannot `vmap` ordered"),
    "jit of vmap": (lambda jax, f, x: jax.jit(jax.vmap(f.allreduce))(x), ValueError, "Cannot `vmap` ordered"),
    "vmap of grad": (
        lambda jax, f, x: jax.jit(jax.vmap(jax.grad(_loss(f))))(x),
        ValueError,
        "Cannot `vmap` ordered",
    ),
    "grad of vmap": (
        lambda jax, f, x: jax.jit(jax.grad(lambda x: jax.vmap(f.allreduce)(x).sum()))(x),
        ValueError,
        "Cannot `vmap` ordered",
    ),
    "jacrev": (lambda jax, f, x: jax.jacrev(f.allreduce)(x), ValueError, "Cannot `vmap` ordered"),
    "jvp": (lambda jax, f, x: jax.jvp(f.allreduce, (x,), (x,)), TypeError, "forward-mode"),
    "jacfwd": (lambda jax, f, x: jax.jacfwd(f.allreduce)(x), TypeError, "forward-mode"),
    "hessian": (lambda jax, f, x: jax.hessian(_loss(f))(x), TypeError, "forward-mode"),
    "checkpoint": (
        lambda jax, f, x: jax.grad(jax.checkpoint(_loss(f)))(x),
        NotImplementedError,
        "Effects not supported",
    ),
}


@pytest.mark.parametrize("what", REFUSED_BY_JAX)
def test_what_has_no_order_is_refused_by_jax(world_of_one: pc.Group, what: str) -> None:
    jax, jnp, pcj = start()
    call, error, why = REFUSED_BY_JAX[what]
    with pytest.raises(error, match=why):
        call(jax, pcj, jnp.ones(3))


@pytest.mark.parametrize("op", OTHER_OPS)
@pytest.mark.parametrize("call", ["allreduce", "reduce", "reduce_scatter"])
def test_what_has_no_gradient_is_refused(world_of_one: pc.Group, call: str, op: Any) -> None:
    jax, jnp, pcj = start()
    for gradient in (jax.grad, lambda loss: jax.jit(jax.grad(loss))):
        with pytest.raises(pc.Unsupported, match=f"gradient is wanted, and '{op}' has none"):
            gradient(lambda x: getattr(pcj, call)(x, op).sum())(jnp.ones(3))


WRONG: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "no axis at all": (lambda f, x: f.allgather(1.0), "0 axes, and no axis 0"),
    "no such axis": (lambda f, x: f.reduce_scatter(x, axis=1), "no axis 1"),
    "counts alone": (lambda f, x: f.alltoall(x, counts=[3]), "go together"),
    "a negative tag": (lambda f, x: f.send(x, 0, tag=-1), "tag must be between"),
    "a tag of gradients": (lambda f, x: f.recv(x, 0, tag=1 << 30), "tag must be between"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_refused(world_of_one: pc.Group, what: str) -> None:
    _, jnp, pcj = start()
    call, why = WRONG[what]
    with pytest.raises(pc.InvalidArgument, match=why):
        call(pcj, jnp.ones(3))


def test_a_call_is_compiled_once(world_of_one: pc.Group) -> None:
    start()
    from pycollective.jax.calls import Allreduce

    assert Allreduce(world_of_one, None, "sum") == Allreduce(world_of_one, None, "sum")
    assert hash(Allreduce(world_of_one, None, "sum")) == hash(Allreduce(world_of_one, None, "sum"))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "int32", "uint8"])
def test_dtypes_stay(world_of_one: pc.Group, dtype: str) -> None:
    _, jnp, pcj = start()
    assert pcj.allreduce(jnp.ones(2, dtype)).dtype == dtype


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
